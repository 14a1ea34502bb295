//! Names that a Python code object looks up.
//!
//! Promises: reads the bytecode of every supported CPython without running it; for an unknown instruction, its
//! name counts as both a global and an attribute. Knows nothing of objects.

use std::collections::HashSet;

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBytes, PyString};

/// Names looked up by a code object and the code objects inside it.
#[derive(Default)]
pub struct Names<'py> {
    /// In the globals, or in the builtins.
    pub globals: Vec<Bound<'py, PyString>>,
    /// In objects and modules.
    pub attributes: Vec<Bound<'py, PyString>>,
    /// Imported modules.
    pub imports: Vec<Bound<'py, PyString>>,
    /// Text that may be the name of an attribute.
    pub texts: Vec<Bound<'py, PyString>>,
    /// The code objects inside.
    pub inner: Vec<Bound<'py, PyAny>>,
    /// Whether a pattern names attributes of a class, which constants and the class list.
    matches_classes: bool,
}

/// Whether a function or attribute of this name reads others by names that are computed.
pub fn computes(name: &str) -> bool {
    matches!(name, "getattr" | "hasattr" | "vars" | "dir" | "eval" | "exec" | "attrgetter" | "globals")
        || matches!(name, "__dict__" | "__getattribute__" | "import_module" | "__import__")
}

/// The numbers of the instructions that have a name.
struct Instructions {
    /// With the shift of the name's number.
    named: Vec<(u8, u32)>,
    globals: HashSet<u8>,
    import: u8,
    match_class: u8,
    extended: u8,
}

impl Instructions {
    fn of(py: Python<'_>) -> PyResult<Instructions> {
        let module = py.import("opcode")?;
        let table = module.getattr("opmap")?;
        let number = |name: &str| -> Option<u8> { table.get_item(name).ok()?.extract().ok() };
        let is_from = |minor: u8| py.version_info() >= (3, minor);
        let named = module.getattr("hasname")?.extract::<Vec<u32>>()?;
        let shift = |op: u8| match op {
            op if Some(op) == number("LOAD_GLOBAL") && is_from(11) => 1,
            op if Some(op) == number("LOAD_ATTR") && is_from(12) => 1,
            op if Some(op) == number("LOAD_SUPER_ATTR") => 2,
            _ => 0,
        };
        Ok(Instructions {
            named: named.into_iter().filter_map(|op| u8::try_from(op).ok()).map(|op| (op, shift(op))).collect(),
            globals: ["LOAD_GLOBAL", "LOAD_NAME", "STORE_GLOBAL", "DELETE_GLOBAL"]
                .into_iter()
                .filter_map(number)
                .collect(),
            import: number("IMPORT_NAME").unwrap_or(0),
            match_class: number("MATCH_CLASS").unwrap_or(0),
            extended: number("EXTENDED_ARG").unwrap_or(0),
        })
    }
}

impl<'py> Names<'py> {
    /// The names of a code object.
    pub fn of(code: &Bound<'py, PyAny>) -> PyResult<Names<'py>> {
        let mut names = Names::default();
        names.add(code, 0)?;
        Ok(names)
    }

    /// Whether the code reads attributes by names that it does not look up itself.
    pub fn computes(&self) -> bool {
        let computed = |name: &Bound<'_, PyString>| computes(name.to_str().unwrap_or_default());
        self.matches_classes || self.globals.iter().chain(&self.attributes).any(computed)
    }

    fn add(&mut self, code: &Bound<'py, PyAny>, depth: usize) -> PyResult<()> {
        static INSTRUCTIONS: PyOnceLock<Instructions> = PyOnceLock::new();
        let py = code.py();
        let instructions = INSTRUCTIONS.get_or_try_init(py, || Instructions::of(py))?;
        let all = code.getattr("co_names")?.extract::<Vec<Bound<'py, PyString>>>()?;
        let bytes = code.getattr("co_code")?.cast_into::<PyBytes>()?;
        let mut argument = 0_usize;
        for pair in bytes.as_bytes().chunks_exact(2) {
            argument = argument << 8 | usize::from(pair[1]);
            if pair[0] == instructions.extended {
                continue;
            }
            self.matches_classes |= pair[0] == instructions.match_class && pair[0] != 0;
            if let Some((op, shift)) = instructions.named.iter().find(|(op, _)| *op == pair[0])
                && let Some(name) = all.get(argument >> shift)
            {
                match op {
                    op if instructions.globals.contains(op) => self.globals.push(name.clone()),
                    op if *op == instructions.import => self.imports.push(name.clone()),
                    _ => self.attributes.push(name.clone()),
                }
            }
            argument = 0;
        }
        for inner in code.getattr("co_consts")?.try_iter()? {
            let inner = inner?;
            if let Ok(text) = inner.cast::<PyString>() {
                self.texts.push(text.clone());
            } else if depth < 16 && inner.get_type().name()?.to_str()? == "code" {
                self.add(&inner, depth + 1)?;
                self.inner.push(inner);
            }
        }
        Ok(())
    }
}
