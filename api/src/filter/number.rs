//! Numbers in filters, and sizes in the form that people read.

const STEPS: [&str; 6] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];

/// `32`, `1.5`.
pub(super) fn plain(text: &str) -> Option<f64> {
    let text = text.trim();
    let digits = text.strip_prefix('-').unwrap_or(text);
    let (whole, part) = digits.split_once('.').unwrap_or((digits, "0"));
    let are_digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    (are_digits(whole) && are_digits(part)).then(|| text.parse().ok()).flatten()
}

/// The bytes of `64`, `64GiB`, `512 M`. A number without a unit is in GiB.
pub(super) fn bytes(text: &str) -> Option<f64> {
    sized(text, 3)
}

/// A plain number, or the bytes of a size with its unit.
pub(super) fn plain_or_bytes(text: &str) -> Option<f64> {
    plain(text).or_else(|| sized(text, 0))
}

/// A size. A number without a unit has the unit `STEPS[usual]`.
fn sized(text: &str, usual: i32) -> Option<f64> {
    let text = text.trim().to_ascii_lowercase();
    let digits = text.find(|sign: char| !sign.is_ascii_digit() && sign != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let number = plain(number)?;
    let step = match unit.trim_start() {
        "" | "b" | "ib" => usual,
        unit => {
            let step = i32::try_from("kmgtp".find(unit.chars().next()?)?).ok()?.saturating_add(1);
            ["", "b", "ib"].contains(&unit.get(1..)?).then_some(step)?
        }
    };
    Some(number * 1024_f64.powi(step))
}

/// `64 GiB`.
pub(super) fn shown(size: f64) -> String {
    let (mut value, mut step) = (size, 0_usize);
    while value >= 1024.0 && step.saturating_add(1) < STEPS.len() {
        value /= 1024.0;
        step = step.saturating_add(1);
    }
    let unit = STEPS.get(step).copied().unwrap_or_default();
    if value >= 100.0 || value.fract() == 0.0 {
        format!("{value:.0} {unit}")
    } else {
        format!("{value:.1} {unit}")
    }
}
