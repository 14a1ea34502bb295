//! Conversion between f128 and decimal text, which the standard library lacks.
//!
//! Promises: reading rounds correctly, to nearest even; writing gives the shortest text that reads back to the same number, 33
//! to 36 digits at most. Both use exact integers, so no case is hard; numbers with thousands of digits take milliseconds.

use num_bigint::BigUint;

/// Stored bits of the fraction.
const FRACTION: i64 = 112;
/// The exponent of the lowest bit of a subnormal.
const LEAST: i64 = -16494;
/// Above this power of ten everything is infinite; `LOWEST` is the limit for zero.
const HIGHEST: i64 = 4940;
const LOWEST: i64 = -5000;

/// The f128 nearest to a decimal number such as `-12.5e-3`, `inf` or `nan`; `None` for any other text.
///
/// ```
/// use burtorch_core::scalar::{f128_from_decimal, f128_to_decimal};
/// let tenth = f128_from_decimal("0.1").unwrap();
/// assert_eq!(f128_to_decimal(tenth), "0.1");
/// assert_eq!(f128_from_decimal("one"), None);
/// ```
pub fn f128_from_decimal(text: &str) -> Option<f128> {
    let text = text.trim();
    let (negative, rest) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    let magnitude = match rest.to_ascii_lowercase().as_str() {
        "inf" | "infinity" => f128::INFINITY,
        "nan" => f128::NAN,
        lower => finite(lower)?,
    };
    Some(if negative { -magnitude } else { magnitude })
}

/// A finite number without a sign.
fn finite(text: &str) -> Option<f128> {
    let (mantissa, exponent) = text.split_once('e').unwrap_or((text, "0"));
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = format!("{whole}{fraction}");
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) || !is_integer(exponent) {
        return None;
    }
    // An exponent beyond i64 decides alone by its sign, unless all digits are zero.
    let far = if exponent.starts_with('-') { i64::MIN / 2 } else { i64::MAX / 2 };
    let exponent = exponent.parse::<i64>().unwrap_or(far).clamp(i64::MIN / 2, i64::MAX / 2) - fraction.len() as i64;
    let digits = digits.trim_start_matches('0');
    let size = digits.len() as i64 + exponent;
    if digits.is_empty() || size < LOWEST {
        return Some(0.0);
    }
    if size > HIGHEST {
        return Some(f128::INFINITY);
    }
    let digits = BigUint::parse_bytes(digits.as_bytes(), 10)?;
    let power = BigUint::from(10_u32).pow(exponent.unsigned_abs() as u32);
    Some(if exponent < 0 { nearest(digits, power) } else { nearest(digits * power, BigUint::from(1_u32)) })
}

fn is_integer(text: &str) -> bool {
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit())
}

/// The f128 nearest to a fraction of positive integers.
fn nearest(numerator: BigUint, denominator: BigUint) -> f128 {
    // A quotient of 116 or 117 bits, times 2^-shift, and whether there is a remainder.
    let shift = FRACTION + 4 - (numerator.bits() as i64 - denominator.bits() as i64);
    let (numerator, denominator) =
        if shift > 0 { (numerator << shift, denominator) } else { (numerator, denominator << -shift) };
    let whole = &numerator / &denominator;
    let rest = numerator != &whole * denominator;
    let Ok(quotient) = u128::try_from(&whole) else { return f128::INFINITY };
    let top = i64::from(127 - quotient.leading_zeros()) - shift;
    let lowest_bit = (top - FRACTION).max(LEAST);
    let drop = lowest_bit + shift;
    if drop > 120 {
        return 0.0;
    }
    let kept = quotient >> drop;
    let below = quotient & ((1 << drop) - 1);
    let half = 1_u128 << (drop - 1);
    let up = below > half || below == half && (rest || kept & 1 == 1);
    let rounded = kept + u128::from(up);
    // The leading bit of a normal number adds one to its exponent; so does a carry.
    let is_normal = kept >> FRACTION != 0;
    let exponent = if is_normal { (lowest_bit + FRACTION + 16382) as u128 } else { 0 };
    let bits = (exponent << FRACTION) + rounded;
    let infinity = f128::INFINITY.to_bits();
    f128::from_bits(bits.min(infinity))
}

/// The shortest decimal number that reads back as `x`: `0.1`, `6.125E+40`, `-inf`, `nan`.
pub fn f128_to_decimal(x: f128) -> String {
    let sign = if x.is_sign_negative() && !x.is_nan() { "-" } else { "" };
    if x.is_nan() {
        return "nan".into();
    }
    if x.is_infinite() {
        return format!("{sign}inf");
    }
    if x == 0.0 {
        return format!("{sign}0");
    }
    let bits = x.abs().to_bits();
    let stored = (bits >> FRACTION) as i64;
    let fraction = bits & ((1 << FRACTION) - 1);
    let mantissa = if stored == 0 { fraction } else { fraction | 1 << FRACTION };
    let exponent = stored.max(1) - 1 + LEAST;
    for n_digits in 1..36 {
        // Short numbers have at most 17 digits; others need about as many as f128 resolves.
        if n_digits > 17 && n_digits < 33 {
            continue;
        }
        let text = layout(&digits_of(mantissa, exponent, n_digits));
        if f128_from_decimal(&text) == Some(x.abs()) {
            return format!("{sign}{text}");
        }
    }
    format!("{sign}{}", layout(&digits_of(mantissa, exponent, 36)))
}

/// `mantissa 2^exponent` rounded to `n` digits, and the power of ten of the first digit.
fn digits_of(mantissa: u128, exponent: i64, n: i64) -> (String, i64) {
    let ten = |power: i64| BigUint::from(10_u32).pow(power as u32);
    let bits = i64::from(128 - mantissa.leading_zeros()) + exponent;
    let mut first = ((bits - 1) as f64 * std::f64::consts::LOG10_2).floor() as i64;
    loop {
        let scale = n - 1 - first;
        let mut numerator = BigUint::from(mantissa);
        let mut denominator = BigUint::from(1_u32);
        if exponent > 0 {
            numerator <<= exponent
        } else {
            denominator <<= -exponent
        }
        if scale > 0 {
            numerator *= ten(scale)
        } else {
            denominator *= ten(-scale)
        }
        let rounded = (numerator * 2_u32 + &denominator) / (denominator * 2_u32);
        let digits = rounded.to_string();
        if digits.len() as i64 == n {
            return (digits, first);
        }
        first += digits.len() as i64 - n;
    }
}

/// The layout of digits, given the power of ten of the first, as in Python.
fn layout((digits, first): &(String, i64)) -> String {
    let digits = digits.trim_end_matches('0');
    let n = digits.len() as i64;
    if !(-7..36).contains(first) {
        let (head, tail) = digits.split_at(1);
        let point = if tail.is_empty() { "" } else { "." };
        return format!("{head}{point}{tail}E{first:+}");
    }
    if *first < 0 {
        return format!("0.{}{digits}", "0".repeat((-first - 1) as usize));
    }
    if n <= first + 1 {
        return format!("{digits}{}", "0".repeat((first + 1 - n) as usize));
    }
    let (whole, fraction) = digits.split_at(*first as usize + 1);
    format!("{whole}.{fraction}")
}

#[cfg(test)]
mod tests {
    use super::{f128_from_decimal, f128_to_decimal};

    #[test]
    fn every_float_comes_back() {
        let mut state = 0x9E37_79B9_7F4A_7C15_F39C_C060_5CED_C834_u128;
        for _ in 0..300 {
            state = state.wrapping_mul(0xDA94_2042_E4DD_58B5_2A9F_2CE1_57B1_7C29).wrapping_add(1);
            let x = f128::from_bits(state.rotate_left(37));
            if x.is_finite() {
                let text = f128_to_decimal(x);
                assert_eq!(f128_from_decimal(&text).map(f128::to_bits), Some(x.to_bits()), "{text}");
            }
        }
    }

    #[test]
    fn floats_are_read_as_the_compiler_reads_them() {
        let same = |text: &str, x: f128| assert_eq!(f128_from_decimal(text).map(f128::to_bits), Some(x.to_bits()));
        same("0.1", 0.1);
        same("-1.5e3", -1500.0);
        same("1e-4966", f128::from_bits(0));
        same("6.475175119438025110924438958227646552e-4966", f128::from_bits(1));
        same("1.189731495357231765085759326628007016e4932", f128::MAX);
        same("1.2e4932", f128::INFINITY);
        same("1e99999999999999999999", f128::INFINITY);
        same("1e-99999999999999999999", 0.0);
        same("0e99999999999999999999", 0.0);
        same("3.362103143112093506262677817321752602e-4932", f128::MIN_POSITIVE);
        same("3.14159265358979323846264338327950288", std::f128::consts::PI);
        for text in ["", "-", "1.2.3", "0x10", "1e", "e5", "1_000", "one", "."] {
            assert_eq!(f128_from_decimal(text), None, "{text}");
        }
    }

    #[test]
    fn short_numbers_stay_short() {
        for text in ["612.5", "0.1", "-0", "1E+100", "inf", "nan", "-35", "1E-8", "0.0000001", "100"] {
            assert_eq!(f128_to_decimal(f128_from_decimal(text).unwrap()), text);
        }
    }
}
