//! Strings and numbers in TOML's syntax: the printed text reads back as the same value.

/// A string in quotation marks.
pub fn quoted(text: &str) -> String {
    toml::Value::String(text.to_owned()).to_string()
}

/// An array of strings.
pub(crate) fn list<'a>(texts: impl IntoIterator<Item = &'a String>) -> String {
    let all: Vec<String> = texts.into_iter().map(|text| quoted(text)).collect();
    format!("[{}]", all.join(", "))
}

/// A number with `places` decimal places, or with all of its digits if rounding would change it.
pub(crate) fn number(x: f64, places: usize) -> String {
    let short = format!("{x:.places$}");
    match short.parse::<f64>() {
        Ok(read) if x.is_finite() && read.to_bits() == x.to_bits() => short,
        _ => toml::Value::Float(x).to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> toml::Value {
        toml::from_str::<toml::Table>(&format!("a = {text}")).unwrap_or_else(|e| panic!("{text}: {e}"))["a"].clone()
    }

    #[test]
    fn a_string_is_read_as_it_is_printed() {
        let hard =
            "no-break\u{a0}space \u{7f}\u{0}\u{1b}[1m \"quoted\" '''single''' \\back \n\r\t \u{feff}\u{1f600}\u{2028}";
        let all = hard.split(' ').chain([hard, "", "'", "\"\"\"", "'\n", "plain BN=64"]);
        for text in all {
            assert_eq!(read(&quoted(text)), toml::Value::String(text.to_owned()));
        }
        assert_eq!(quoted("BN=64 warps=4"), "\"BN=64 warps=4\"");
        assert_eq!(list(&["a".to_owned(), "b\u{a0}".to_owned()]), "[\"a\", \"b\u{a0}\"]");
    }

    #[test]
    fn a_number_is_read_as_it_is_printed() {
        for x in [0.0, -0.0, 0.0004, 12.34, 12.345_678, 1e-300, 1e300, f64::MAX, f64::INFINITY, f64::NEG_INFINITY, 1e16]
        {
            for places in [1, 3, 4] {
                let text = number(x, places);
                assert!(read(&text).as_float().is_some_and(|y| y.to_bits() == x.to_bits()), "{x}: {text}");
            }
        }
        assert!(read(&number(f64::NAN, 3)).as_float().is_some_and(f64::is_nan));
        assert_eq!([number(12.34, 3), number(5.0, 1), number(0.25, 4)], ["12.340", "5.0", "0.2500"]);
    }
}
