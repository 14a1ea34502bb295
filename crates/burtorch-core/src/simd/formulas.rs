//! The list of elementary functions, unfolded by [`elementary`](super::elementary) and [`slices`](super::slices).

/// Calls `$then!` with one row per function: its doc, name, type and arguments; those of one argument first.
macro_rules! formulas {
    ($then:ident) => {
        $then! {
            unary {
                /// e^x; 1 ULP.
                exp Exp (x)
                /// e^x - 1; 1 ULP.
                expm1 Expm1 (x)
                /// The natural logarithm; 1 ULP.
                log Log (x)
                /// The hyperbolic tangent; 3 ULP.
                tanh Tanh (x)
                /// 1 / (1 + e^-x); 3 ULP.
                sigmoid Sigmoid (x)
                /// The derivative of the sigmoid at x; 4 ULP.
                sigmoid_grad SigmoidGrad (x)
                /// x where it is positive, otherwise 0; NaN stays NaN.
                relu Relu (x)
            }
            binary {
                /// The derivative of tanh at x where y = tanh(x); 6 ULP.
                tanh_grad TanhGrad (x, y)
            }
        }
    };
}

pub(super) use formulas;
