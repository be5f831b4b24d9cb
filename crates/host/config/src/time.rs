//! Times in configurations: instants, durations and windows, in whole seconds since 1970 (UTC).

use super::section::{At, Mistakes, as_integer, kind};
use std::fmt;
use toml::de::DeValue;
use toml::value::{Datetime, Offset};

/// A period from `start_s` up to, but not including, `end_s`. Seconds since 1970; the extreme values mean no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    /// The first second in it.
    pub start_s: i64,
    /// The first second after it.
    pub end_s: i64,
}

impl Window {
    /// All times.
    pub const ALWAYS: Window = Window { start_s: i64::MIN, end_s: i64::MAX };

    /// Whether `now_s` is in the window.
    #[must_use]
    pub fn contains(&self, now_s: i64) -> bool {
        self.start_s <= now_s && (now_s < self.end_s || self.end_s == i64::MAX)
    }

    /// Whether all of `other` is in this window.
    #[must_use]
    pub fn covers(&self, other: &Window) -> bool {
        self.start_s <= other.start_s && other.end_s <= self.end_s
    }

    /// Whether the two share an instant.
    #[must_use]
    pub fn overlaps(&self, other: &Window) -> bool {
        self.start_s < other.end_s && other.start_s < self.end_s
    }

    /// The window extended by this much at both ends; an end without limit stays so.
    #[must_use]
    pub fn widened(&self, by_s: i64) -> Window {
        let widen = |t: i64, by: i64| if t == i64::MIN || t == i64::MAX { t } else { t.saturating_add(by) };
        Window { start_s: widen(self.start_s, -by_s), end_s: widen(self.end_s, by_s) }
    }
}

impl fmt::Display for Window {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.start_s, self.end_s) {
            (i64::MIN, i64::MAX) => f.write_str("always"),
            (start, i64::MAX) => write!(f, "from {}", rfc3339(start)),
            (i64::MIN, end) => write!(f, "until {}", rfc3339(end)),
            (start, end) => write!(f, "{} to {}", rfc3339(start), rfc3339(end)),
        }
    }
}

/// Days from 1970-01-01 to a date of the Gregorian calendar, which repeats every 400 years of 146,097 days. Years begin
/// in March here, so that the leap day is the last day of its year.
fn days_from_civil(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let (era, of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + day_of_year - 719_468
}

/// Seconds since 1970 as `2026-01-31T23:59:59Z`.
#[must_use]
pub fn rfc3339(time_s: i64) -> String {
    let (days, second) = (time_s.div_euclid(86_400), time_s.rem_euclid(86_400));
    let shifted = days + 719_468;
    let (era, of_era) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let day_of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    let (hour, minute) = (second / 3600, second / 60 % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{:02}Z", second % 60)
}

/// Converts a date and time with its offset to seconds since 1970.
///
/// # Errors
/// A description of the missing part.
pub(super) fn unix_seconds(at: &Datetime) -> Result<i64, &'static str> {
    let (Some(date), Some(time)) = (at.date, at.time) else {
        return Err("a time has to have date and time of day, as in 2026-01-31T00:00:00Z");
    };
    let offset_min = match at.offset {
        Some(Offset::Z) => 0,
        Some(Offset::Custom { minutes }) => i64::from(minutes),
        None => return Err("a time has to say its offset from UTC: a closing Z, or for example +02:00"),
    };
    let days = days_from_civil(date.year.into(), date.month.into(), date.day.into());
    let minutes = i64::from(time.hour) * 60 + i64::from(time.minute) - offset_min;
    Ok(days * 86_400 + minutes * 60 + i64::from(time.second.unwrap_or(0)))
}

/// Converts text in the format of [`rfc3339`], with any offset, to seconds since 1970.
///
/// # Errors
/// A description of the mistake.
pub fn parse_time(text: &str) -> Result<i64, String> {
    let at: Datetime = text.parse().map_err(|_| format!("'{text}' is no time; write 2026-01-31T00:00:00Z"))?;
    unix_seconds(&at).map_err(str::to_owned)
}

/// Reads a time in the document.
pub(super) fn time(at: &At<&DeValue<'_>>, mistakes: &mut Mistakes<'_>) -> Option<i64> {
    let parsed = match at.value {
        DeValue::Datetime(t) => unix_seconds(t).map_err(str::to_owned),
        other => Err(format!("a time is written without quotes, as 2026-01-31T00:00:00Z; this is {}", kind(other))),
    };
    parsed.map_err(|what| mistakes.at(&at.span, what)).ok()
}

/// The longest duration, 100 years, so that sums of times cannot overflow.
const MAX_DURATION_S: i64 = 36_525 * 86_400;

/// Reads a duration in the document: seconds, or text such as "90s", "15m", "12h", "30d", "2w", "1d12h".
pub(super) fn duration(at: &At<&DeValue<'_>>, mistakes: &mut Mistakes<'_>) -> Option<i64> {
    let parsed = match at.value {
        DeValue::Integer(_) => as_integer(at.value),
        DeValue::String(s) => parse_duration(s),
        _ => None,
    };
    let valid = parsed.filter(|s| (0..=MAX_DURATION_S).contains(s));
    if valid.is_none() {
        mistakes.at(&at.span, "a duration is a number of seconds or text such as \"15m\", \"12h\", \"30d\", \"2w\"");
    }
    valid
}

fn parse_duration(text: &str) -> Option<i64> {
    let mut rest = text.trim();
    let mut sum = 0i64;
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit())?;
        let count: i64 = rest[..digits].parse().ok()?;
        let mut chars = rest[digits..].chars();
        let unit = match chars.next()? {
            's' => 1,
            'm' => 60,
            'h' => 3600,
            'd' => 86_400,
            'w' => 7 * 86_400,
            _ => return None,
        };
        sum = sum.checked_add(count.checked_mul(unit)?)?;
        rest = chars.as_str().trim_start();
    }
    Some(sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_survive_the_round_trip() {
        for (text, seconds) in [
            ("1970-01-01T00:00:00Z", 0),
            ("2000-02-29T12:00:00Z", 951_825_600),
            ("2026-01-31T23:59:59Z", 1_769_903_999),
            ("2100-03-01T00:00:00Z", 4_107_542_400),
            ("1969-12-31T23:59:59Z", -1),
            ("9999-12-31T23:59:59Z", 253_402_300_799),
        ] {
            assert_eq!(parse_time(text), Ok(seconds), "{text}");
            assert_eq!(rfc3339(seconds), text);
        }
        for day in -200_000..200_000i64 {
            let text = rfc3339(day * 86_400 + 7);
            if !text.starts_with('-') {
                assert_eq!(parse_time(&text), Ok(day * 86_400 + 7), "{text}");
            }
        }
    }

    #[test]
    fn offsets_are_taken_off_and_needed() {
        assert_eq!(parse_time("1970-01-01T02:00:00+02:00"), Ok(0));
        assert_eq!(parse_time("1969-12-31T16:30:00-07:30"), Ok(0));
        assert!(parse_time("2026-01-01T00:00:00").unwrap_err().contains("offset"));
        assert!(parse_time("2026-01-01").unwrap_err().contains("time of day"));
        assert!(parse_time("soon").unwrap_err().contains("no time"));
    }

    #[test]
    fn durations_add_up() {
        assert_eq!(parse_duration("90s"), Some(90));
        assert_eq!(parse_duration("1d12h"), Some(129_600));
        assert_eq!(parse_duration(" 2w 1s "), Some(1_209_601));
        for bad in ["", "5", "m", "5x", "-5s", "99999999999999999999d", "9223372036854775807w", "5ü"] {
            assert_eq!(parse_duration(bad), None, "{bad}");
        }
    }

    #[test]
    fn windows_begin_inside_and_end_outside() {
        let window = Window { start_s: 10, end_s: 20 };
        assert!(!window.contains(9) && window.contains(10) && window.contains(19) && !window.contains(20));
        assert!(Window::ALWAYS.contains(i64::MAX) && Window::ALWAYS.contains(i64::MIN));
        assert!(window.widened(5).covers(&window) && !window.covers(&window.widened(5)));
        assert_eq!(Window::ALWAYS.widened(5), Window::ALWAYS);
        assert!(window.overlaps(&Window { start_s: 19, end_s: 30 }));
        assert!(!window.overlaps(&Window { start_s: 20, end_s: 30 }));
        assert_eq!(window.to_string(), "1970-01-01T00:00:10Z to 1970-01-01T00:00:20Z");
    }
}
