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
                /// log(1 + x); 1 ULP.
                log1p Log1p (x)
                /// log(1 + e^x), whose derivative is the sigmoid; 2 ULP.
                softplus Softplus (x)
                /// The sine; 1 ULP for any x.
                sin Sin (x)
                /// The cosine; 1 ULP for any x.
                cos Cos (x)
                /// The tangent; 2 ULP for any x.
                tan Tan (x)
                /// The derivative of tan at x: 1 + tan(x)^2; 2 ULP.
                tan_grad TanGrad (x)
                /// The error function; 1 ULP.
                erf Erf (x)
                /// The derivative of erf at x: 2/sqrt(pi) e^(-x^2); 2 ULP.
                erf_grad ErfGrad (x)
                /// x times the normal distribution at x, exact (not the tanh approximation); 4 ULP.
                gelu Gelu (x)
                /// The derivative of gelu at x: Phi(x) + x phi(x), accurate beside its root; 2.4 ULP measured, the aim is 2.
                gelu_grad GeluGrad (x)
                /// The density of the normal distribution: e^(-x^2/2) / sqrt(2 pi); 2 ULP.
                normal_pdf NormalPdf (x)
                /// x where it is positive, otherwise 0; NaN stays NaN.
                relu Relu (x)
            }
            binary {
                /// The angle of the point (x, self) from the x axis, from -pi to pi; 2 ULP.
                atan2 Atan2 (y, x)
                /// x / (x^2 + y^2), a partial of atan2; 2 ULP.
                over_squares OverSquares (x, y)
                /// x to the power y; 1 ULP.
                pow Pow (x, y)
                /// The derivative of x^y by x: y x^(y-1); 2 ULP.
                pow_dx PowDx (x, y)
                /// The derivative of x^y by y: x^y log x, NaN for negative x; 2 ULP.
                pow_dy PowDy (x, y)
                /// The derivative of tanh at x where y = tanh(x); 6 ULP.
                tanh_grad TanhGrad (x, y)
            }
        }
    };
}

pub(super) use formulas;
