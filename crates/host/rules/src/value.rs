//! Values that rules compare fields with.

use std::net::IpAddr;

/// Up to sixteen bytes, as a register of nftables has them.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Value {
    // First, so that values of one length are in the order in which the kernel compares them.
    bytes: [u8; Value::MAX],
    len: u8,
}

impl Value {
    /// The longest value: an IPv6 address, or the name of an interface.
    pub const MAX: usize = 16;

    /// A number of four bytes.
    pub const ZERO: Value = Value { bytes: [0; Value::MAX], len: 4 };

    /// These bytes.
    ///
    /// # Panics
    /// When there are more than [`Value::MAX`].
    pub fn new(of: &[u8]) -> Self {
        let mut bytes = [0; Value::MAX];
        bytes[..of.len()].copy_from_slice(of);
        Value { bytes, len: of.len() as u8 }
    }

    /// A number in the byte order of this machine, as marks, users and interface indices are.
    pub fn host(number: u32) -> Self {
        Value::new(&number.to_ne_bytes())
    }

    /// A name of an interface or of a kind of interfaces, with zeros behind it. The last byte is always one.
    pub fn name(name: &str) -> Self {
        let mut bytes = [0; Value::MAX];
        bytes[..Value::MAX - 1].iter_mut().zip(name.bytes()).for_each(|(to, from)| *to = from);
        Value::new(&bytes)
    }

    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }

    /// The bits that a mask of the same length keeps.
    #[must_use]
    pub fn and(mut self, mask: Value) -> Self {
        self.bytes.iter_mut().zip(mask.bytes).for_each(|(byte, mask)| *byte &= mask);
        self
    }
}

/// The first bits of an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Prefix {
    /// The address, without the other bits.
    first: Value,
    mask: Value,
}

impl Prefix {
    /// The prefix of this many bits of an address.
    pub fn new(address: IpAddr, bits: u8) -> Self {
        let address = Value::from(address);
        let mask = Value::new(&sealane_sys::mask(bits).to_be_bytes()[..address.bytes().len()]);
        Prefix { first: address.and(mask), mask }
    }

    /// Its first address.
    pub fn first(&self) -> Value {
        self.first
    }

    /// Its last address.
    pub fn last(&self) -> Value {
        let mut last = self.first;
        last.bytes.iter_mut().zip(self.mask.bytes()).for_each(|(byte, mask)| *byte |= !mask);
        last
    }

    /// The mask of its bits.
    pub fn mask(&self) -> Value {
        self.mask
    }

    /// Their number.
    pub fn bits(&self) -> u32 {
        self.mask.bytes().iter().map(|byte| byte.count_ones()).sum()
    }

    /// Whether it has this address.
    pub fn has(&self, address: Value) -> bool {
        address.len == self.first.len && address.and(self.mask) == self.first
    }

    /// Whether it has all addresses of another one.
    pub fn contains(&self, other: Prefix) -> bool {
        self.bits() <= other.bits() && self.has(other.first)
    }
}

impl From<u8> for Value {
    fn from(byte: u8) -> Self {
        Value::new(&[byte])
    }
}

/// In network byte order.
impl From<u16> for Value {
    fn from(number: u16) -> Self {
        Value::new(&number.to_be_bytes())
    }
}

/// In network byte order.
impl From<u32> for Value {
    fn from(number: u32) -> Self {
        Value::new(&number.to_be_bytes())
    }
}

impl From<[u8; 2]> for Value {
    fn from(bytes: [u8; 2]) -> Self {
        Value::new(&bytes)
    }
}

impl From<IpAddr> for Value {
    fn from(address: IpAddr) -> Self {
        match address {
            IpAddr::V4(v4) => Value::new(&v4.octets()),
            IpAddr::V6(v6) => Value::new(&v6.octets()),
        }
    }
}

impl core::fmt::Debug for Value {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("0x")?;
        self.bytes().iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}
