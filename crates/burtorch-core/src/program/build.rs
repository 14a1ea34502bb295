//! The purpose of a replay: values, gradients or tangents.

/// The purpose of a replay besides computing values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Build {
    /// Values only.
    Values,
    /// Gradients of a weighted sum of outputs.
    Reverse(Seeds),
    /// The derivative of all outputs along a direction.
    Tangent,
    /// The same in a single pass, each tangent computed with its value: the directions are written before
    /// [`Replay::values`](super::Replay::values), which computes both. Operands are waited for once instead of twice,
    /// but values cannot be computed alone.
    ValuesWithTangents,
}

impl Build {
    /// Whether tangents are computed.
    pub(super) fn has_tangents(self) -> bool {
        matches!(self, Build::Tangent | Build::ValuesWithTangents)
    }
}

/// Which outputs a reverse pass starts from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seeds {
    /// A single output.
    One(usize),
    /// All outputs.
    All,
}
