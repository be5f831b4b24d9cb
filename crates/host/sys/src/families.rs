//! The families of packets.

pub(crate) const FAMILIES: [i32; 2] = [libc::AF_INET, libc::AF_INET6];

/// Some of the families of packets.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Families {
    /// IPv4.
    pub v4: bool,
    /// IPv6.
    pub v6: bool,
}

impl Families {
    /// Both.
    pub const ALL: Families = Families { v4: true, v6: true };

    pub(crate) fn iter(self) -> impl Iterator<Item = u8> {
        FAMILIES.into_iter().zip([self.v4, self.v6]).filter(|(_, has)| *has).map(|(family, _)| family as u8)
    }
}
