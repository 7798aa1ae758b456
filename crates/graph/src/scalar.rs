//! What a word means: variables of the environment, numbers, truth values, sizes.

use serde_json::{Number, Value};

use crate::Cause;

/// Where variables are looked up.
pub type Environment<'a> = &'a dyn Fn(&str) -> Option<String>;

/// Fills in `${NAME}` and `${NAME:-default}`; the default also stands in for an empty variable, as in a shell.
/// `$${` stands for `${` itself.
pub(crate) fn expand(text: &str, environment: Environment<'_>) -> Result<String, Cause> {
    let mut expanded = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, body)) = rest.split_once("${") {
        if let Some(before) = before.strip_suffix('$') {
            expanded.push_str(before);
            expanded.push_str("${");
            rest = body;
            continue;
        }
        expanded.push_str(before);
        let Some((reference, after)) = body.split_once('}') else {
            return Err(Cause::Syntax(format!("'${{{body}' is not closed: expected '}}'")));
        };
        expanded.push_str(&look_up(reference, environment)?);
        rest = after;
    }
    expanded.push_str(rest);
    Ok(expanded)
}

/// Makes a text one that [`expand`] gives back as it is.
pub(crate) fn escape_references(text: &str) -> String {
    text.replace("${", "$${")
}

fn look_up(reference: &str, environment: Environment<'_>) -> Result<String, Cause> {
    let (name, default) = match reference.split_once(":-") {
        Some((name, default)) => (name, Some(default)),
        None => (reference, None),
    };
    if !is_variable(name) {
        let message = format!("'${{{reference}}}' names no variable; '$${{' stands for '${{' itself");
        return Err(Cause::Syntax(message));
    }
    match (environment(name), default) {
        (Some(value), None) => Ok(value),
        (Some(value), Some(_)) if !value.is_empty() => Ok(value),
        (_, Some(default)) => Ok(default.to_owned()),
        (None, None) => Err(Cause::Variable { name: name.to_owned() }),
    }
}

/// Whether a text can be the name of a variable.
pub(crate) fn is_variable(name: &str) -> bool {
    name.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_')
        && name.chars().all(|letter| letter.is_ascii_alphanumeric() || letter == '_')
}

/// The meaning of a word without quotes.
///
/// Numbers that JSON cannot hold (`.inf`, `.nan`) stay texts.
///
/// # Source
/// YAML 1.2.2, section 10.3.2, core schema.
pub(crate) fn typed(text: &str) -> Value {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => Value::Null,
        "true" | "True" | "TRUE" => Value::Bool(true),
        "false" | "False" | "FALSE" => Value::Bool(false),
        _ => number(text).map_or_else(|| Value::String(text.to_owned()), Value::Number),
    }
}

fn number(text: &str) -> Option<Number> {
    if let Some(digits) = text.strip_prefix("0x") {
        return unsigned(digits, 16);
    }
    if let Some(digits) = text.strip_prefix("0o") {
        return unsigned(digits, 8);
    }
    let positive = text.strip_prefix('+').unwrap_or(text);
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    if !digits.starts_with(|first: char| first.is_ascii_digit() || first == '.') {
        return None;
    }
    if let Ok(integer) = positive.parse::<i64>() {
        return Some(integer.into());
    }
    if let Ok(integer) = positive.parse::<u64>() {
        return Some(integer.into());
    }
    positive.parse::<f64>().ok().and_then(Number::from_f64)
}

fn unsigned(digits: &str, radix: u32) -> Option<Number> {
    let only_digits = digits.chars().all(|digit| digit.is_digit(radix));
    u64::from_str_radix(digits, radix).ok().filter(|_| only_digits).map(Number::from)
}

/// A size in bytes: a whole number, or a number with a unit (`256 MiB`, `1.5 GB`).
pub(crate) fn bytes(value: &Value) -> Option<usize> {
    match value {
        Value::Number(number) => usize::try_from(number.as_u64()?).ok(),
        Value::String(text) => bytes_with_unit(text),
        _ => None,
    }
}

fn bytes_with_unit(text: &str) -> Option<usize> {
    let text = text.trim();
    let end = text.find(|letter: char| !letter.is_ascii_digit() && letter != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let unit_bytes: u64 = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "kb" => 1000,
        "mb" => 1000 * 1000,
        "gb" => 1000 * 1000 * 1000,
        "tb" => 1000 * 1000 * 1000 * 1000,
        "kib" => 1 << 10,
        "mib" => 1 << 20,
        "gib" => 1 << 30,
        "tib" => 1 << 40,
        _ => return None,
    };
    if let Ok(whole) = number.parse::<u64>() {
        return usize::try_from(whole.checked_mul(unit_bytes)?).ok();
    }
    let size = number.parse::<f64>().ok()? * unit_bytes as f64;
    // Above 2^53 a fraction of a byte cannot be told from the next byte: no such size is meant.
    (size < 9e15).then_some(size as usize)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn environment(name: &str) -> Option<String> {
        match name {
            "SIZE" => Some("64".to_owned()),
            "EMPTY" => Some(String::new()),
            _ => None,
        }
    }

    #[test]
    fn variables_are_filled_in() {
        for (text, expanded) in [
            ("${SIZE}", "64"),
            ("a${SIZE}b${NONE:-32}", "a64b32"),
            ("${EMPTY}|${EMPTY:-x}|${NONE:-}", "|x|"),
            ("$${SIZE} $$${SIZE} $5", "${SIZE} $${SIZE} $5"),
            ("${NONE:-a:-b}", "a:-b"),
        ] {
            assert_eq!(expand(text, &environment).unwrap(), expanded, "{text}");
        }
    }

    #[test]
    fn variables_that_are_unusable_are_named() {
        assert_eq!(expand("${NONE}", &environment), Err(Cause::Variable { name: "NONE".to_owned() }));
        for text in ["${SIZE", "${}", "${a b}", "${1}"] {
            assert!(matches!(expand(text, &environment), Err(Cause::Syntax(_))), "{text}");
        }
    }

    #[test]
    fn escaped_references_come_back() {
        for text in ["${A}", "$${A}", "$$$", "$${", "a${"] {
            assert_eq!(expand(&escape_references(text), &environment).unwrap(), text);
        }
    }

    #[test]
    fn words_mean_what_yaml_says() {
        for (text, value) in [
            ("32", json!(32)),
            ("-7", json!(-7)),
            ("+7", json!(7)),
            ("15.5", json!(15.5)),
            (".5", json!(0.5)),
            ("1e-3", json!(0.001)),
            ("0x1F", json!(31)),
            ("0o17", json!(15)),
            ("18446744073709551615", json!(u64::MAX)),
            ("true", json!(true)),
            ("~", json!(null)),
            ("", json!(null)),
            ("yes", json!("yes")),
            ("1:2", json!("1:2")),
            ("+-7", json!("+-7")),
            ("0x+1", json!("0x+1")),
            ("1e999", json!("1e999")),
            (".inf", json!(".inf")),
            ("inf", json!("inf")),
            ("-", json!("-")),
        ] {
            assert_eq!(typed(text), value, "{text}");
        }
    }

    #[test]
    fn sizes_have_units() {
        for (value, size) in [
            (json!(4096), Some(4096)),
            (json!("256 MiB"), Some(256 << 20)),
            (json!("1.5GB"), Some(1_500_000_000)),
            (json!("10 kb"), Some(10_000)),
            (json!("99999999999999999999 TiB"), None),
            (json!("18446744073709551615 KiB"), None),
            (json!("12 parsecs"), None),
            (json!("-1"), None),
            (json!(1.5), None),
            (json!(-1), None),
        ] {
            assert_eq!(bytes(&value), size, "{value}");
        }
    }
}
