//! The word that was probably meant.

/// Longer words are no slips of the finger, and comparing them would take its time.
const LONGEST: usize = 64;

/// The known word nearest to `word`, if one is near enough to be meant: at most half of the letters, and at most
/// three, differ. Letters that changed places count once.
///
/// # Source
/// F. J. Damerau, "A technique for computer detection and correction of spelling errors", 1964,
/// doi:10.1145/363958.363994.
pub fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let letters = word.chars().count();
    if letters > LONGEST {
        return None;
    }
    let limit = letters.div_ceil(2).min(3).min(letters.saturating_sub(1));
    known
        .into_iter()
        .map(|name| (strsim::damerau_levenshtein(word, name), name))
        .filter(|(distance, _)| *distance <= limit)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slips_are_found_and_strangers_are_not() {
        let known = ["source", "size", "angles", "phantom_source"];
        for (word, meant) in [
            ("sauce", Some("source")),
            ("sise", Some("size")),
            ("angels", Some("angles")),
            ("fantom_source", Some("phantom_source")),
            ("gpu", None),
            ("x", None),
            ("", None),
        ] {
            assert_eq!(nearest(word, known), meant, "{word}");
        }
        assert_eq!(nearest(&"a".repeat(100_000), known), None);
    }
}
