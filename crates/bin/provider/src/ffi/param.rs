//! Lists of parameters (`OSSL_PARAM`): values that are passed in, and values that are asked for.

use super::raw::{INTEGER, OCTET_PTR, OCTET_STRING, RawParam, UNMODIFIED, UNSIGNED_INTEGER, UTF8_PTR, UTF8_STRING};
use crate::failure::{Failure, Reason};
use core::ffi::{CStr, c_char, c_uint, c_void};
use core::marker::PhantomData;
use core::ptr;

/// The type of a parameter in a list of what can be set or asked for.
#[derive(Clone, Copy)]
pub(crate) enum Kind {
    Int,
    Uint,
    Size,
    /// An unsigned number of any size.
    Unsigned,
    Text,
    TextPointer,
    Octets,
    OctetsPointer,
}

/// An entry of a list of what can be set or asked for; the list ends with [`Known::END`].
#[repr(transparent)]
pub(crate) struct Known(RawParam);

// SAFETY: the entry points to static text only, and nobody writes it.
unsafe impl Sync for Known {}

impl Known {
    pub(crate) const END: Known =
        Known(RawParam { key: ptr::null(), data_type: 0, data: ptr::null_mut(), data_size: 0, return_size: 0 });

    pub(crate) const fn new(key: &'static CStr, kind: Kind) -> Self {
        let (data_type, data_size) = match kind {
            Kind::Int => (INTEGER, 4),
            Kind::Uint => (UNSIGNED_INTEGER, 4),
            Kind::Size => (UNSIGNED_INTEGER, size_of::<usize>()),
            Kind::Unsigned => (UNSIGNED_INTEGER, 0),
            Kind::Text => (UTF8_STRING, 0),
            Kind::TextPointer => (UTF8_PTR, 0),
            Kind::Octets => (OCTET_STRING, 0),
            Kind::OctetsPointer => (OCTET_PTR, 0),
        };
        Known(RawParam { key: key.as_ptr(), data_type, data: ptr::null_mut(), data_size, return_size: UNMODIFIED })
    }
}

/// The address of a list for OpenSSL.
pub(super) fn address(list: &'static [Known]) -> *const RawParam {
    list.as_ptr().cast()
}

/// Finds the entry with a key.
///
/// # Safety
/// `list` is null or a list of parameters that ends with a null key.
unsafe fn find(list: *const RawParam, key: &CStr) -> Option<*const RawParam> {
    let mut at = list;
    if at.is_null() {
        return None;
    }
    loop {
        // SAFETY: the end of the list has not been passed.
        let name = unsafe { (*at).key };
        if name.is_null() {
            return None;
        }
        // SAFETY: keys are strings with a terminator.
        if unsafe { is(name, key) } {
            return Some(at);
        }
        // SAFETY: as above.
        at = unsafe { at.add(1) };
    }
}

/// Whether a string is `key`. It is read only as far as it is the same: a call looks for many keys in lists of one.
///
/// # Safety
/// `name` is a string with a terminator.
unsafe fn is(name: *const c_char, key: &CStr) -> bool {
    let same = |(i, byte): (usize, &u8)| {
        // SAFETY: all bytes before this one are those of the key, none of which is the terminator.
        let other = unsafe { *name.cast::<u8>().add(i) };
        other == *byte
    };
    key.to_bytes_with_nul().iter().enumerate().all(same)
}

/// A value of a list that we pass on.
pub(crate) enum Value {
    /// An unsigned number, the most significant byte first.
    Number(Vec<u8>),
    Int(i32),
    Text(&'static CStr),
    Octets(Vec<u8>),
}

/// Calls `f` with a list of these values, which lives for as long as the call.
pub(super) fn with_list<T>(values: &mut [(&'static CStr, Value)], f: impl FnOnce(*const RawParam) -> T) -> T {
    let list: Vec<RawParam> = values
        .iter_mut()
        .map(|(key, value)| {
            let (data_type, data, data_size): (_, *mut c_void, _) = match value {
                Value::Number(bytes) => {
                    bytes.reverse();
                    little_endian(bytes);
                    (UNSIGNED_INTEGER, bytes.as_mut_ptr().cast(), bytes.len())
                }
                Value::Int(number) => (INTEGER, ptr::from_mut(number).cast(), size_of::<i32>()),
                Value::Text(text) => (UTF8_STRING, text.as_ptr().cast_mut().cast(), text.count_bytes()),
                Value::Octets(bytes) => (OCTET_STRING, bytes.as_mut_ptr().cast(), bytes.len()),
            };
            RawParam { key: key.as_ptr(), data_type, data, data_size, return_size: UNMODIFIED }
        })
        .chain([Known::END.0])
        .collect();
    f(list.as_ptr())
}

/// Calls `f` with a list of a string of bytes, which is not copied.
pub(super) fn with_secret<T>(key: &'static CStr, bytes: &[u8], f: impl FnOnce(*const RawParam) -> T) -> T {
    let (data, data_size) = (bytes.as_ptr().cast_mut().cast(), bytes.len());
    let entry = RawParam { key: key.as_ptr(), data_type: OCTET_STRING, data, data_size, return_size: UNMODIFIED };
    f([entry, Known::END.0].as_ptr())
}

/// Values that are passed in; none where the caller gives no list.
#[derive(Clone, Copy)]
pub(crate) struct Params<'a>(*const RawParam, PhantomData<&'a RawParam>);

impl<'a> Params<'a> {
    /// # Safety
    /// The list is null, or it and what it points to are readable and not changed for `'a`.
    pub(super) unsafe fn new(list: *const RawParam) -> Self {
        Params(list, PhantomData)
    }

    /// Whether there is no value.
    pub(crate) fn is_empty(self) -> bool {
        // SAFETY: `new` was promised a list.
        self.0.is_null() || unsafe { (*self.0).key.is_null() }
    }

    /// The value under `key`.
    pub(crate) fn get(self, key: &CStr) -> Option<Param<'a>> {
        // SAFETY: `new` was promised a list.
        let found = unsafe { find(self.0, key) };
        // SAFETY: an entry of the list, readable for 'a.
        found.map(|at| Param(unsafe { &*at }))
    }
}

/// A value that is passed in.
#[derive(Clone, Copy)]
pub(crate) struct Param<'a>(&'a RawParam);

/// A number in the byte order of the machine as one with the least significant byte first.
fn little_endian(bytes: &mut [u8]) {
    if cfg!(target_endian = "big") {
        bytes.reverse();
    }
}

/// The array of pointers whose address is the value.
///
/// # Safety
/// A value by address is null, or the place of a pointer.
unsafe fn array(param: &RawParam) -> Option<*const *mut u8> {
    let place = param.data.cast::<*const *mut u8>().cast_const();
    if param.data_type != OCTET_PTR || place.is_null() {
        return None;
    }
    // SAFETY: by the caller's promise.
    let array = unsafe { place.read_unaligned() };
    (!array.is_null()).then_some(array)
}

impl<'a> Param<'a> {
    const WRONG: Failure = Failure::new(Reason::FailedToGetParameter);

    fn bytes(self) -> Option<&'a [u8]> {
        // A length that no object has is a mark of some sort.
        if self.0.data.is_null() || isize::try_from(self.0.data_size).is_err() {
            return None;
        }
        // SAFETY: OpenSSL's callers give `data_size` readable bytes at `data`.
        Some(unsafe { core::slice::from_raw_parts(self.0.data.cast::<u8>(), self.0.data_size) })
    }

    /// A string of bytes whose length is said to be -1, which is a mark: the caller has `len` bytes. `None` for all others.
    pub(crate) fn octets_of_unsaid_length(self, len: usize) -> Option<&'a [u8]> {
        if self.0.data.is_null() || self.0.data_size != usize::MAX || self.0.data_type != OCTET_STRING {
            return None;
        }
        // SAFETY: whoever sets this mark gives as many bytes as the parameter has by its definition.
        Some(unsafe { core::slice::from_raw_parts(self.0.data.cast::<u8>(), len) })
    }

    fn integer(self) -> Result<i128, Failure> {
        let bytes = self.bytes().filter(|b| (1..=16).contains(&b.len())).ok_or(Self::WRONG)?;
        let (mut wide, len) = ([0u8; 16], bytes.len());
        wide[..len].copy_from_slice(bytes);
        little_endian(&mut wide[..len]);
        let negative = match self.0.data_type {
            INTEGER => wide[len - 1] & 0x80 != 0,
            UNSIGNED_INTEGER => false,
            _ => return Err(Self::WRONG),
        };
        wide[len..].fill(if negative { 0xff } else { 0 });
        Ok(i128::from_le_bytes(wide))
    }

    /// An unsigned number of C's `unsigned int`.
    pub(crate) fn uint(self) -> Result<u32, Failure> {
        u32::try_from(self.integer()?).map_err(|_| Self::WRONG)
    }

    /// A number of C's `int`.
    pub(crate) fn int(self) -> Result<i32, Failure> {
        i32::try_from(self.integer()?).map_err(|_| Self::WRONG)
    }

    /// A number of C's `size_t`.
    pub(crate) fn size(self) -> Result<usize, Failure> {
        usize::try_from(self.integer()?).map_err(|_| Self::WRONG)
    }

    /// The length of the value, also where there is no value.
    pub(crate) fn len(self) -> usize {
        self.0.data_size
    }

    /// A string of bytes; `None` where only its length is given.
    pub(crate) fn octets(self) -> Result<Option<&'a [u8]>, Failure> {
        if self.0.data_type == OCTET_STRING { Ok(self.bytes()) } else { Err(Self::WRONG) }
    }

    /// The strings to which an array of `count` pointers leads, whose address is passed; each is as long as the parameter says.
    pub(crate) fn octets_of_each(self, count: usize) -> Result<Vec<&'a [u8]>, Failure> {
        // SAFETY: the parameter has the type that `array` asks for.
        let array = unsafe { array(self.0) }.ok_or(Self::WRONG)?;
        let string = |i: usize| {
            // SAFETY: callers have a pointer for each pipe.
            let at = unsafe { array.add(i).read() };
            if at.is_null() {
                return Err(Self::WRONG);
            }
            // SAFETY: callers have as many bytes there as they say.
            Ok(unsafe { core::slice::from_raw_parts(at.cast_const(), self.0.data_size) })
        };
        (0..count).map(string).collect()
    }

    /// An unsigned number of any size, the most significant byte first, without zeros before it.
    pub(crate) fn number(self) -> Result<Vec<u8>, Failure> {
        if self.0.data_type != UNSIGNED_INTEGER {
            return Err(Self::WRONG);
        }
        let mut bytes = self.bytes().ok_or(Self::WRONG)?.to_vec();
        little_endian(&mut bytes);
        bytes.truncate(bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1));
        bytes.reverse();
        Ok(bytes)
    }

    /// A number of C's `int`, or text, as the caller likes.
    pub(crate) fn word(self) -> Result<Word<'a>, Failure> {
        if self.0.data_type == UTF8_STRING { self.text().map(Word::Text) } else { self.int().map(Word::Number) }
    }

    /// Text.
    pub(crate) fn text(self) -> Result<&'a str, Failure> {
        if self.0.data_type != UTF8_STRING {
            return Err(Self::WRONG);
        }
        let bytes = self.bytes().ok_or(Self::WRONG)?;
        let len = bytes.iter().position(|b| *b == 0).unwrap_or(bytes.len());
        core::str::from_utf8(&bytes[..len]).map_err(|_| Self::WRONG)
    }
}

/// A value that has a number and a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Word<'a> {
    Number(i32),
    Text(&'a str),
}

/// Values that are asked for.
pub(crate) struct Requests<'a>(*mut RawParam, PhantomData<&'a mut RawParam>);

impl Requests<'_> {
    /// # Safety
    /// The list is null, or it and what it points to are writable and used by nobody else for the lifetime.
    pub(super) unsafe fn new(list: *mut RawParam) -> Self {
        Requests(list, PhantomData)
    }

    /// The request under `key`.
    pub(crate) fn get(&mut self, key: &CStr) -> Option<Request<'_>> {
        // SAFETY: `new` was promised a list.
        let found = unsafe { find(self.0, key) };
        // SAFETY: an entry of the list, which nobody else uses.
        found.map(|at| Request(unsafe { &mut *at.cast_mut() }))
    }

    /// The request under `key` if there is no other one. libcrypto asks for one length so with each message.
    pub(crate) fn only(&mut self, key: &CStr) -> Option<Request<'_>> {
        // SAFETY: `new` was promised a list, whose end has not been passed; keys are strings with a terminator.
        let is_only = unsafe {
            let list = self.0;
            !list.is_null() && !(*list).key.is_null() && is((*list).key, key) && (*list.add(1)).key.is_null()
        };
        // SAFETY: an entry of the list, which nobody else uses.
        is_only.then(|| Request(unsafe { &mut *self.0 }))
    }

    /// Answers the request under `key`, if there is one.
    pub(crate) fn answer(
        &mut self,
        key: &CStr,
        answer: impl FnOnce(&mut Request<'_>) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        self.get(key).map_or(Ok(()), |mut request| answer(&mut request))
    }
}

/// A value that is asked for.
pub(crate) struct Request<'a>(&'a mut RawParam);

impl Request<'_> {
    const WRONG: Failure = Failure::new(Reason::FailedToSetParameter);

    /// The room for the value.
    pub(crate) fn room(&self) -> usize {
        self.0.data_size
    }

    /// Whether a string of bytes is to be copied into the caller's buffer.
    pub(crate) fn wants_copy(&self) -> bool {
        self.0.data_type == OCTET_STRING && !self.0.data.is_null()
    }

    fn buffer(&mut self, len: usize) -> Option<&mut [u8]> {
        if self.0.data.is_null() || self.0.data_size < len {
            return None;
        }
        // SAFETY: OpenSSL's callers give `data_size` writable bytes at `data`, of which these are the first.
        Some(unsafe { core::slice::from_raw_parts_mut(self.0.data.cast::<u8>(), len) })
    }

    fn integer(&mut self, value: i128, natural: usize) -> Result<(), Failure> {
        if self.0.data.is_null() {
            self.0.return_size = natural;
            return Ok(());
        }
        let len = self.0.data_size;
        let bits = 8 * u32::try_from(len).map_err(|_| Self::WRONG)?;
        let fits = match self.0.data_type {
            _ if !(1..=8).contains(&len) => false,
            INTEGER => (-(1i128 << (bits - 1))..1 << (bits - 1)).contains(&value),
            UNSIGNED_INTEGER => (0..1 << bits).contains(&value),
            _ => false,
        };
        if !fits {
            return Err(Self::WRONG);
        }
        let mut bytes = [0u8; 8];
        bytes[..len].copy_from_slice(&value.to_le_bytes()[..len]);
        little_endian(&mut bytes[..len]);
        self.buffer(len).ok_or(Self::WRONG)?.copy_from_slice(&bytes[..len]);
        self.0.return_size = len;
        Ok(())
    }

    /// Answers with C's `size_t`.
    pub(crate) fn size(&mut self, value: usize) -> Result<(), Failure> {
        self.integer(value as i128, size_of::<usize>())
    }

    /// Answers with C's `unsigned int`.
    pub(crate) fn uint(&mut self, value: u32) -> Result<(), Failure> {
        self.integer(value.into(), size_of::<c_uint>())
    }

    /// Answers with C's `int`.
    pub(crate) fn int(&mut self, value: i32) -> Result<(), Failure> {
        self.integer(value.into(), size_of::<c_uint>())
    }

    /// Answers with an unsigned number of any size, whose most significant byte is first.
    pub(crate) fn number(&mut self, value: &[u8]) -> Result<(), Failure> {
        if self.0.data_type != UNSIGNED_INTEGER {
            return Err(Self::WRONG);
        }
        let len = self.0.data_size;
        self.0.return_size = value.len();
        if self.0.data.is_null() {
            return Ok(());
        }
        let bytes = self.buffer(len).filter(|bytes| bytes.len() >= value.len()).ok_or(Self::WRONG)?;
        let (zeros, low) = bytes.split_at_mut(len - value.len());
        zeros.fill(0);
        low.copy_from_slice(value);
        bytes.reverse();
        little_endian(bytes);
        // The zeros count: libcrypto takes as many bytes as there are.
        self.0.return_size = len;
        Ok(())
    }

    /// Answers with a number of C's `int`, or its name, as the caller asks.
    pub(crate) fn word(&mut self, number: i32, name: &CStr) -> Result<(), Failure> {
        if self.0.data_type == UTF8_STRING { self.copy_text(name) } else { self.int(number) }
    }

    /// Copies bytes into the caller's buffer.
    pub(crate) fn octets(&mut self, value: &[u8]) -> Result<(), Failure> {
        if self.0.data_type != OCTET_STRING {
            return Err(Self::WRONG);
        }
        self.0.return_size = value.len();
        if !self.0.data.is_null() {
            self.buffer(value.len()).ok_or(Self::WRONG)?.copy_from_slice(value);
        }
        Ok(())
    }

    /// Copies bytes into the caller's buffer. Where its length is said to be 0, which is a mark, it has room for them all.
    pub(crate) fn octets_of_unsaid_room(&mut self, value: &[u8]) -> Result<(), Failure> {
        if self.0.data_size == 0 && self.wants_copy() {
            self.0.data_size = value.len();
        }
        self.octets(value)
    }

    /// Copies bytes into the caller's buffer, or gives their address, as the caller asks. The caller may use an address
    /// for as long as the context lives and is not changed.
    pub(crate) fn octets_or_address(&mut self, value: &[u8]) -> Result<(), Failure> {
        if self.0.data_type != OCTET_PTR {
            return self.octets(value);
        }
        self.address(value.as_ptr().cast(), value.len());
        Ok(())
    }

    /// Gives the address of bytes, or null.
    pub(crate) fn octets_address(&mut self, value: Option<&[u8]>, len: usize) -> Result<(), Failure> {
        if self.0.data_type != OCTET_PTR {
            return Err(Self::WRONG);
        }
        self.address(value.map_or(ptr::null(), |v| v.as_ptr().cast()), len);
        Ok(())
    }

    /// Copies the front of each string to where an array of pointers leads, whose address is passed.
    pub(crate) fn octets_for_each<'b>(&mut self, values: impl Iterator<Item = &'b [u8]>) -> Result<(), Failure> {
        let len = self.0.data_size;
        // SAFETY: the parameter has the type that `array` asks for.
        let array = unsafe { array(self.0) }.ok_or(Self::WRONG)?;
        for (i, value) in values.enumerate() {
            // SAFETY: callers have a pointer for each pipe.
            let at = unsafe { array.add(i).read() };
            let value = value.get(..len).filter(|_| !at.is_null()).ok_or(Self::WRONG)?;
            // SAFETY: callers have as many bytes there as they say.
            unsafe { ptr::copy_nonoverlapping(value.as_ptr(), at, len) };
        }
        Ok(())
    }

    /// Copies text, or gives its address, as the caller asks. The caller may use an address as [`Self::octets_or_address`] says.
    pub(crate) fn text(&mut self, value: &CStr) -> Result<(), Failure> {
        match self.0.data_type {
            UTF8_PTR => {
                self.address(value.as_ptr().cast(), value.count_bytes());
                Ok(())
            }
            _ => self.copy_text(value),
        }
    }

    /// Copies text into the caller's buffer.
    fn copy_text(&mut self, value: &CStr) -> Result<(), Failure> {
        if self.0.data_type != UTF8_STRING {
            return Err(Self::WRONG);
        }
        let bytes = value.to_bytes_with_nul();
        self.0.return_size = value.count_bytes();
        if self.0.data.is_null() {
            return Ok(());
        }
        // The terminator is only written where there is room for it.
        let len = bytes.len().min(self.0.data_size.max(value.count_bytes()));
        self.buffer(len).ok_or(Self::WRONG)?.copy_from_slice(&bytes[..len]);
        Ok(())
    }

    /// Gives the address of text that lives as long as the provider.
    pub(super) fn provider_text(&mut self, value: &CStr) -> Result<(), Failure> {
        if self.0.data_type != UTF8_PTR {
            return Err(Self::WRONG);
        }
        self.address(value.as_ptr().cast(), value.count_bytes());
        Ok(())
    }

    fn address(&mut self, at: *const c_void, len: usize) {
        self.0.return_size = len;
        let place = self.0.data.cast::<*const c_void>();
        if !place.is_null() {
            // SAFETY: for values by address, `data` is the place of a pointer.
            unsafe { place.write_unaligned(at) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_found_by_their_whole_name() {
        let list = [Known::new(c"iv", Kind::Octets), Known::new(c"ivlen", Kind::Size), Known::END];
        let place = |key: &CStr| {
            // SAFETY: the list has its end.
            let found = unsafe { find(address_of(&list), key) };
            found.map(|at| (at as usize - list.as_ptr() as usize) / size_of::<Known>())
        };
        assert_eq!((place(c"iv"), place(c"ivlen")), (Some(0), Some(1)));
        for other in [c"i", c"ivl", c"ivlen2", c"", c"tag"] {
            assert_eq!(place(other), None);
        }
        let mut one = [
            RawParam {
                key: c"ivlen".as_ptr(),
                data_type: UNSIGNED_INTEGER,
                data: ptr::null_mut(),
                data_size: 0,
                return_size: 0,
            },
            RawParam { key: ptr::null(), data_type: 0, data: ptr::null_mut(), data_size: 0, return_size: 0 },
        ];
        // SAFETY: the list has its end.
        let mut asked = unsafe { Requests::new(one.as_mut_ptr()) };
        assert!(asked.only(c"ivlen").is_some() && asked.only(c"iv").is_none() && asked.only(c"ivlen2").is_none());
        one[1].key = c"keylen".as_ptr();
        let end = RawParam { key: ptr::null(), data_type: 0, data: ptr::null_mut(), data_size: 0, return_size: 0 };
        let mut two: Vec<_> = one.into_iter().chain([end]).collect();
        // SAFETY: as above.
        assert!(unsafe { Requests::new(two.as_mut_ptr()) }.only(c"ivlen").is_none());
        // SAFETY: no list at all.
        assert!(unsafe { find(ptr::null(), c"iv") }.is_none());
    }

    fn address_of(list: &[Known]) -> *const RawParam {
        list.as_ptr().cast()
    }

    #[test]
    fn an_array_of_strings_is_read_and_written() {
        let (mut first, mut second) = ([1u8; 5], [2u8; 5]);
        let array = [first.as_mut_ptr(), second.as_mut_ptr()];
        let mut place = array.as_ptr();
        let data = ptr::from_mut(&mut place).cast();
        let mut raw = RawParam {
            key: c"pipeline-tag".as_ptr(),
            data_type: OCTET_PTR,
            data,
            data_size: 4,
            return_size: UNMODIFIED,
        };
        let read = Param(&raw).octets_of_each(2).map(|strings| strings.concat());
        assert_eq!(read.unwrap(), [1, 1, 1, 1, 2, 2, 2, 2]);
        Request(&mut raw).octets_for_each([[7u8; 16], [8; 16]].iter().map(|tag| &tag[..])).unwrap();
        assert_eq!((first, second), ([7, 7, 7, 7, 1], [8, 8, 8, 8, 2]));
        raw.data_type = OCTET_STRING;
        assert!(Param(&raw).octets_of_each(2).is_err());
        (raw.data_type, raw.data) = (OCTET_PTR, ptr::null_mut());
        assert!(Param(&raw).octets_of_each(2).is_err());
    }
}
