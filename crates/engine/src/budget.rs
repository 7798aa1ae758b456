//! How much memory a run may take.

/// Host memory that a run may plan with when nobody says otherwise: nine tenths of what is free, in bytes.
///
/// Looks at the machine and at the memory limit of the control group, whichever is lower.
pub fn available_host_bytes() -> u64 {
    let machine = meminfo("MemAvailable:").unwrap_or(u64::MAX);
    let group = read_number("/sys/fs/cgroup/memory.max").map_or(u64::MAX, |limit| {
        limit.saturating_sub(read_number("/sys/fs/cgroup/memory.current").unwrap_or(0))
    });
    machine.min(group) / 10 * 9
}

fn meminfo(key: &str) -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(key))?;
    let kib: u64 = line.split_whitespace().next()?.parse().ok()?;
    Some(kib * 1024)
}

fn read_number(path: &str) -> Option<u64> {
    std::fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// Most bytes that this process had resident so far.
pub(crate) fn peak_rss_bytes() -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap_or_default();
    line.split_whitespace().next().and_then(|kib| kib.parse::<u64>().ok()).unwrap_or(0) * 1024
}

/// Reads a size as users write it: `1048576`, `64MiB`, `1.5 GB`, `8G`.
///
/// `K M G T` and `KiB …` count in 1024, `KB …` in 1000.
///
/// # Errors
/// A text that names what was found.
pub fn parse_bytes(text: &str) -> Result<u64, String> {
    let wrong =
        || format!("'{text}' is no size: expected bytes with an optional unit, for example 8GiB or 500MB");
    let trimmed = text.trim();
    let split = trimmed.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(trimmed.len());
    let (number, unit) = trimmed.split_at(split);
    let number: f64 = number.parse().map_err(|_not_a_number| wrong())?;
    let factor: u64 = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" | "kib" => 1 << 10,
        "m" | "mib" => 1 << 20,
        "g" | "gib" => 1 << 30,
        "t" | "tib" => 1 << 40,
        "kb" => 1_000,
        "mb" => 1_000_000,
        "gb" => 1_000_000_000,
        "tb" => 1_000_000_000_000,
        _ => return Err(wrong()),
    };
    let bytes = number * factor as f64;
    if bytes >= 1.0 && bytes < u64::MAX as f64 { Ok(bytes as u64) } else { Err(wrong()) }
}

/// A size for people: `8.0 MiB`.
pub fn show_bytes(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut value = bytes as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 { format!("{bytes} B") } else { format!("{value:.1} {}", UNITS[unit]) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_with_their_units() {
        assert_eq!(parse_bytes("64MiB"), Ok(64 << 20));
        assert_eq!(parse_bytes("1.5 GB"), Ok(1_500_000_000));
        assert_eq!(parse_bytes("12"), Ok(12));
        for wrong in ["", "x", "-3", "3 parsec", "0"] {
            assert!(parse_bytes(wrong).unwrap_err().contains(&format!("'{wrong}'")));
        }
    }

    #[test]
    fn sizes_are_shown_with_one_digit() {
        assert_eq!(show_bytes(8 << 20), "8.0 MiB");
        assert_eq!(show_bytes(17), "17 B");
    }
}
