//! The purpose of a replay: values, gradients or tangents.

/// What a replay is to do besides computing values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Build {
    /// Nothing.
    Values,
    /// Gradients of a weighted sum of outputs.
    Reverse(Seeds),
    /// The derivative of all outputs along a direction.
    Tangent,
    /// The same at one go, each tangent beside its value: the directions are written before [`Replay::values`](super::Replay::values), which
    /// computes both. One wait for operands then serves both, but values alone cannot be computed.
    ValuesWithTangents,
}

impl Build {
    /// Whether there are tangents.
    pub(super) fn has_tangents(self) -> bool {
        matches!(self, Build::Tangent | Build::ValuesWithTangents)
    }
}

/// Which outputs a reverse pass starts from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seeds {
    /// One of them.
    One(usize),
    /// All of them.
    All,
}
