//! The date of a run, as paths hold it.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The time now in UTC: `YYYYMMDD-HHMMSS`.
pub(crate) fn now() -> String {
    // A clock before 1970 is not worth a failure: the date is for people.
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    text(since_epoch.as_secs())
}

/// Seconds since 1970 as `YYYYMMDD-HHMMSS`.
fn text(seconds: u64) -> String {
    let (year, month, day) = civil_from_days(seconds / 86_400);
    let in_day = seconds % 86_400;
    let (hour, minute, second) = (in_day / 3600, in_day / 60 % 60, in_day % 60);
    format!("{year:04}{month:02}{day:02}-{hour:02}{minute:02}{second:02}")
}

/// Year, month and day of a day counted from 1970-01-01.
///
/// # Source
/// H. Hinnant, "chrono-compatible low-level date algorithms", 2013, `civil_from_days`.
fn civil_from_days(days: u64) -> (u64, u64, u64) {
    // Eras of 400 years, counted from 0000-03-01, so that leap days come last.
    let days = days + 719_468;
    let (era, of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    (era * 400 + year_of_era + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_moments_have_their_dates() {
        assert_eq!(text(0), "19700101-000000");
        assert_eq!(text(951_826_154), "20000229-120914");
        assert_eq!(text(1_709_251_199), "20240229-235959");
        assert_eq!(text(1_709_251_200), "20240301-000000");
        assert_eq!(text(4_107_542_399), "21000228-235959");
    }
}
