//! Names and numbers of the values of an enum, by a list of them: a place in the list, counted from 1, is the number in messages.

/// The name of a value; empty for one that is not listed.
pub fn name<T: Copy + PartialEq>(all: &[(T, &'static str)], one: T) -> &'static str {
    all.iter().find(|(known, _)| *known == one).map_or("", |(_, name)| name)
}

/// The number of a value; 0 for one that is not listed.
pub fn number<T: Copy + PartialEq>(all: &[(T, &'static str)], one: T) -> u8 {
    (1..).zip(all).find(|(_, (known, _))| *known == one).map_or(0, |(number, _)| number)
}

/// The value of a number.
pub fn of_number<T: Copy>(all: &[(T, &'static str)], number: u8) -> Option<T> {
    all.get(usize::from(number).checked_sub(1)?).map(|(one, _)| *one)
}
