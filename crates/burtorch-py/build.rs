//! Passes on what kind of interpreter this is built for (`Py_GIL_DISABLED` and the like).

fn main() {
    pyo3_build_config::use_pyo3_cfgs();
}
