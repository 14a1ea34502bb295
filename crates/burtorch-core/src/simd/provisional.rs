#![allow(missing_docs)]
use super::*;
pub trait Provisional: Sized {
    fn exp(self) -> Self;
    fn expm1(self) -> Self;
    fn log(self) -> Self;
    fn log1p(self) -> Self;
    fn sin(self) -> Self;
    fn cos(self) -> Self;
    fn tan(self) -> Self;
    fn tanh(self) -> Self;
    fn sigmoid(self) -> Self;
    fn softplus(self) -> Self;
    fn pow(self, y: Self) -> Self;
    fn atan2(self, x: Self) -> Self;
    fn tanh_grad(self, y: Self) -> Self;
    fn sigmoid_grad(self) -> Self;
}
macro_rules! f {
    ($t:ty) => {
        impl Provisional for $t {
            fn exp(self) -> Self {
                <$t>::exp(self)
            }
            fn expm1(self) -> Self {
                <$t>::exp_m1(self)
            }
            fn log(self) -> Self {
                <$t>::ln(self)
            }
            fn log1p(self) -> Self {
                <$t>::ln_1p(self)
            }
            fn sin(self) -> Self {
                <$t>::sin(self)
            }
            fn cos(self) -> Self {
                <$t>::cos(self)
            }
            fn tan(self) -> Self {
                <$t>::tan(self)
            }
            fn tanh(self) -> Self {
                <$t>::tanh(self)
            }
            fn sigmoid(self) -> Self {
                let e = <$t>::exp(-<$t>::abs(self));
                if self.is_nan() {
                    self
                } else if self >= 0.0 {
                    1.0 / (1.0 + e)
                } else {
                    e / (1.0 + e)
                }
            }
            fn softplus(self) -> Self {
                let e = <$t>::exp(-<$t>::abs(self));
                self.max(0.0) + <$t>::ln_1p(e)
            }
            fn pow(self, y: Self) -> Self {
                <$t>::powf(self, y)
            }
            fn atan2(self, x: Self) -> Self {
                <$t>::atan2(self, x)
            }
            fn tanh_grad(self, y: Self) -> Self {
                if <$t>::abs(y) <= 0.76 {
                    (1.0 - y) * (1.0 + y)
                } else {
                    let e = <$t>::exp(-2.0 * <$t>::abs(self));
                    4.0 * e / ((1.0 + e) * (1.0 + e))
                }
            }
            fn sigmoid_grad(self) -> Self {
                let e = <$t>::exp(-<$t>::abs(self));
                e / ((1.0 + e) * (1.0 + e))
            }
        }
    };
}
f!(f32);
f!(f64);
macro_rules! l { ($t:ty, $n:literal, $($name:ident)*, $($bin:ident)*) => { impl Provisional for Simd<$t, $n> {
    $(fn $name(self) -> Self { Simd::from_array(self.to_array().map(|x| Provisional::$name(x))) })*
    $(fn $bin(self, o: Self) -> Self { let mut r = self; for k in 0..$n { r[k] = Provisional::$bin(self[k], o[k]); } r })*
} } }
macro_rules! ll { ($t:ty, $n:literal) => { l!($t, $n, exp expm1 log log1p sin cos tan tanh sigmoid softplus sigmoid_grad, pow atan2 tanh_grad); } }
ll!(f32, 4);
ll!(f32, 8);
ll!(f32, 16);
ll!(f64, 2);
ll!(f64, 4);
ll!(f64, 8);
