//! The release of the kernel.

/// Whether it is at least this one.
#[must_use]
pub fn is_at_least(major: u32, minor: u32) -> bool {
    number_of(&rustix::system::uname().release().to_string_lossy()) >= (major, minor)
}

/// The first two numbers of a release.
fn number_of(release: &str) -> (u32, u32) {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(|number| number.parse().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases() {
        let numbers = ["6.1.0-28-amd64", "5.19", "7.0-rc1", "6", "", "x.y"].map(number_of);
        assert_eq!(numbers, [(6, 1), (5, 19), (7, 0), (6, 0), (0, 0), (0, 0)]);
        assert!(is_at_least(4, 0) && !is_at_least(1000, 0));
    }
}
