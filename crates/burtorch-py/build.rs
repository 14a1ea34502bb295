//! Passes on what kind of interpreter this is built for (`Py_GIL_DISABLED` and the like), and in which order code lies.

fn main() {
    pyo3_build_config::use_pyo3_cfgs();
    put_code_in_order();
}

/// In release builds for Linux, what every process runs lies side by side, so that an import and a small graph take less
/// memory (`order.ld`, written by `scripts/order_code.py`). The linkers of GNU and LLVM know how; another one that was asked
/// for is left alone.
fn put_code_in_order() {
    println!("cargo::rerun-if-changed=order.ld");
    let variable = |name| std::env::var(name).unwrap_or_default();
    let another = variable("CARGO_ENCODED_RUSTFLAGS").contains("fuse-ld");
    if variable("CARGO_CFG_TARGET_OS") == "linux" && variable("PROFILE") == "release" && !another {
        let folder = variable("CARGO_MANIFEST_DIR");
        println!("cargo::rustc-link-arg-cdylib=-T{folder}/order.ld");
    }
}
