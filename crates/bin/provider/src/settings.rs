//! The provider's section of OpenSSL's configuration: which algorithms are offered, by which drivers, and where keys lie.

use core::ffi::CStr;
use sealane_guarded::Lock;
use sealane_keeper_client::client::SOCKET;
use std::path::PathBuf;

/// Reads the value of a key of the section.
pub(crate) type Read<'a> = &'a dyn Fn(&CStr) -> Option<String>;

/// The algorithms of one kind that are offered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Offer {
    All,
    /// All but these.
    AllBut(&'static [&'static str]),
    /// These, by any of their names.
    Only(Vec<String>),
}

impl Offer {
    pub(crate) const NONE: Offer = Offer::Only(Vec::new());

    /// Whether an algorithm is offered; `is_named` says whether a name is one of its names.
    pub(crate) fn has(&self, is_named: impl Fn(&str) -> bool) -> bool {
        match self {
            Offer::All => true,
            Offer::AllBut(names) => !names.iter().any(|name| is_named(name)),
            Offer::Only(names) => names.iter().any(|name| is_named(name)),
        }
    }
}

/// The home of the keys of ciphers and MACs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Home {
    /// The heap of the process.
    Process,
    /// The process of the keeper, which computes with them.
    Keeper,
    /// Guarded memory.
    Guarded {
        /// Its length in bytes; `None`: what is usual, or less.
        len: Option<usize>,
        /// The way in which it is closed.
        lock: Lock,
        /// Whether it has to have all that it can.
        is_strict: bool,
    },
}

/// Ciphers that are not offered with guarded keys, unless the configuration names them. OpenSSL's generator of random numbers goes on
/// from its parent's state in a child: it encrypts once by AES-ECB under the parent's key, and takes a new one then. So it needs a
/// provider that has the key there. It keeps that key in ordinary memory in any case.
const OF_GENERATOR: [&str; 3] = ["AES-128-ECB", "AES-192-ECB", "AES-256-ECB"];

/// Ciphers that are not offered with keys of the keeper's, unless the configuration names them: the generator would have the keeper asked
/// for each random number, several times.
const OF_GENERATOR_ASKING: [&str; 4] = ["AES-128-ECB", "AES-192-ECB", "AES-256-ECB", "AES-256-CTR"];

/// The keys of the section.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Settings {
    pub(crate) ciphers: Offer,
    pub(crate) digests: Offer,
    pub(crate) macs: Offer,
    /// The names of keys, the types of keys, and what is done with them.
    pub(crate) stores: Offer,
    pub(crate) keys: Offer,
    pub(crate) signatures: Offer,
    pub(crate) asym_ciphers: Offer,
    /// The types of opaque keys of ciphers and MACs.
    pub(crate) opaques: Offer,
    /// Names of drivers, each of which serves its algorithm alone.
    pub(crate) drivers: Vec<String>,
    /// The socket of the keeper of keys.
    pub(crate) keeper: PathBuf,
    /// Whether the provider connects to the keeper when it is loaded, and not when it is first used.
    pub(crate) connects_at_load: bool,
}

/// Whether a name is one of those that are offered.
pub(crate) struct Names<'a> {
    pub(crate) cipher: &'a dyn Fn(&str) -> bool,
    pub(crate) digest: &'a dyn Fn(&str) -> bool,
    pub(crate) mac: &'a dyn Fn(&str) -> bool,
}

/// The setting of what is offered of an operation.
type OfferOf = fn(&mut Settings) -> &mut Offer;

/// The operations of OpenSSL that the provider serves: their names in `sealane-block-operations`, and the setting of each.
const OPERATIONS: [(&str, OfferOf); 8] = [
    ("cipher", |settings| &mut settings.ciphers),
    ("digest", |settings| &mut settings.digests),
    ("mac", |settings| &mut settings.macs),
    ("store", |settings| &mut settings.stores),
    ("keymgmt", |settings| &mut settings.keys),
    ("signature", |settings| &mut settings.signatures),
    ("asym-cipher", |settings| &mut settings.asym_ciphers),
    ("skeymgmt", |settings| &mut settings.opaques),
];

/// Keys that nobody reads, and the ones that are meant. OpenSSL tells the value of a key that it is asked for, and no list of
/// keys, so that only likely slips can be found.
const SLIPS: [(&CStr, &str); 32] = [
    (c"sealane-cipher", "sealane-ciphers"),
    (c"sealane_ciphers", "sealane-ciphers"),
    (c"ciphers", "sealane-ciphers"),
    (c"CIPHER", "CIPHERS"),
    (c"sealane-digest", "sealane-digests"),
    (c"sealane_digests", "sealane-digests"),
    (c"digests", "sealane-digests"),
    (c"DIGEST", "DIGESTS"),
    (c"sealane-mac", "sealane-macs"),
    (c"sealane_macs", "sealane-macs"),
    (c"macs", "sealane-macs"),
    (c"MACS", "sealane-macs"),
    (c"sealane-driver", "sealane-drivers"),
    (c"sealane_drivers", "sealane-drivers"),
    (c"drivers", "sealane-drivers"),
    (c"sealane-block-operation", "sealane-block-operations"),
    (c"sealane-blocked-operations", "sealane-block-operations"),
    (c"block-operations", "sealane-block-operations"),
    (c"keeper", "sealane-keeper"),
    (c"sealane_keeper", "sealane-keeper"),
    (c"sealane-keeper-socket", "sealane-keeper"),
    (c"sealane-socket", "sealane-keeper"),
    (c"keeper-connect", "sealane-keeper-connect"),
    (c"sealane-keeper-preload", "sealane-keeper-connect"),
    (c"sealane-key", "sealane-keys"),
    (c"sealane_keys", "sealane-keys"),
    (c"sealane-key-home", "sealane-keys"),
    (c"keys", "sealane-keys"),
    (c"sealane-guarded", "sealane-guarded-memory"),
    (c"sealane-memory", "sealane-guarded-memory"),
    (c"sealane_guarded_memory", "sealane-guarded-memory"),
    (c"guarded-memory", "sealane-guarded-memory"),
];

impl Home {
    /// Reads the keys that say where keys lie. They are read before all others, because the memory is there before all else.
    ///
    /// # Errors
    /// As for [`Settings::read`].
    pub(crate) fn read(read: Read<'_>) -> Result<Self, String> {
        let memory = value(read, &[c"sealane-guarded-memory"])?;
        let len = memory.as_ref().map(|(key, value)| memory_len(key, value)).transpose()?;
        let home = value(read, &[c"sealane-keys"])?;
        let without_memory = |home| match &memory {
            None => Ok(home),
            Some((key, value)) => Err(format!("{key} = {value}: this memory is for sealane-keys = guarded")),
        };
        let (lock, is_strict) = match home.as_ref().map(|(key, value)| (*key, value.as_str())) {
            None | Some((_, "process")) => return without_memory(Home::Process),
            Some((_, "keeper")) => return without_memory(Home::Keeper),
            Some((_, "guarded")) => (Lock::ProtectionKey, false),
            Some((_, "guarded-strict")) => (Lock::ProtectionKey, true),
            Some((_, "guarded-mprotect")) => (Lock::Mprotect, false),
            Some((key, value)) => {
                return Err(format!(
                    "{key} = {value}: it is process, guarded, guarded-strict, guarded-mprotect or keeper"
                ));
            }
        };
        Ok(Home::Guarded { len, lock, is_strict })
    }
}

/// A length in bytes, or in K, M or G.
fn memory_len(key: &str, value: &str) -> Result<usize, String> {
    const LEAST: usize = 64 << 10;
    const MOST: usize = 64 << 30;
    let units = [('K', 10), ('M', 20), ('G', 30)];
    let unit = units.iter().find_map(|(unit, shift)| Some((value.strip_suffix(*unit)?, *shift)));
    let (number, shift) = unit.unwrap_or((value, 0));
    let is_number = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    let len = number.parse().ok().filter(|_| is_number).and_then(|number: usize| number.checked_mul(1 << shift));
    len.filter(|len| (LEAST..=MOST).contains(len))
        .ok_or_else(|| format!("{key} = {value}: it is a number of bytes, or of K, M or G, from 64K to 64G"))
}

impl Settings {
    /// Reads the section, but for [`Home`]. It may name algorithms of `known`, and drivers for which `is_driver` holds.
    ///
    /// # Errors
    /// A line that names the key, its value and what is wrong with it.
    pub(crate) fn read(
        read: Read<'_>,
        home: Home,
        known: &Names<'_>,
        is_driver: &dyn Fn(&str) -> bool,
    ) -> Result<Self, String> {
        if let Some((key, meant, value)) = SLIPS.iter().find_map(|(key, meant)| Some((key, meant, read(key)?))) {
            let key = key.to_string_lossy();
            return Err(format!("{key} = {value}: there is no key {key} here; {meant} is meant"));
        }
        let ciphers = match home {
            Home::Process => Offer::All,
            Home::Guarded { .. } => Offer::AllBut(&OF_GENERATOR),
            Home::Keeper => Offer::AllBut(&OF_GENERATOR_ASKING),
        };
        let mut settings = Settings {
            ciphers: offer(read, &[c"sealane-ciphers", c"CIPHERS"], [&ciphers, &ciphers], "cipher", known.cipher)?,
            // A digest that a program takes from elsewhere than before has locked people out of ssh, and gains little.
            digests: offer(
                read,
                &[c"sealane-digests", c"DIGESTS"],
                [&Offer::NONE, &Offer::All],
                "digest",
                known.digest,
            )?,
            macs: offer(read, &[c"sealane-macs"], [&Offer::All; 2], "MAC", known.mac)?,
            stores: Offer::All,
            keys: Offer::All,
            signatures: Offer::All,
            asym_ciphers: Offer::All,
            opaques: Offer::All,
            drivers: drivers(read, is_driver)?,
            keeper: keeper(read)?,
            connects_at_load: connects_at_load(read)?,
        };
        // The lists of blocked operations have been read all the same, so that their mistakes are found.
        for offer_of in blocked(read)? {
            *offer_of(&mut settings) = Offer::NONE;
        }
        Ok(settings)
    }
}

/// The value of the one key that is there.
fn value<'a>(read: Read<'_>, keys: &[&'a CStr]) -> Result<Option<(&'a str, String)>, String> {
    let mut found: Option<(&str, String)> = None;
    for key in keys {
        let (name, Some(value)) = (key.to_str().unwrap_or_default(), read(key)) else { continue };
        if let Some((first, _)) = found {
            return Err(format!("{first} and {name} mean the same; only one of them may be there"));
        }
        found = Some((name, value));
    }
    Ok(found)
}

fn words(value: &str) -> impl Iterator<Item = &str> {
    value.split([',', ' ', '\t']).filter(|word| !word.is_empty())
}

/// The value of a list of algorithms; `default` is that of a list that is not there, and `all` that of `ALL`.
fn offer(
    read: Read<'_>,
    keys: &[&CStr],
    [default, all]: [&Offer; 2],
    what: &str,
    exists: &dyn Fn(&str) -> bool,
) -> Result<Offer, String> {
    let Some((key, value)) = value(read, keys)? else { return Ok(default.clone()) };
    let wrong = |why: String| format!("{key} = {value}: {why}");
    let mut names = Vec::new();
    for word in words(&value) {
        let (name, threshold) = word.split_once(':').map_or((word, None), |(name, number)| (name, Some(number)));
        if let Some(number) = threshold
            && number.parse::<u32>().is_err()
        {
            return Err(wrong(format!("{word}: the size after the colon is a number of bytes")));
        }
        if !exists(name) && !["ALL", "NONE"].contains(&name) {
            return Err(wrong(format!("there is no {what} {name} here")));
        }
        names.push(name.to_owned());
    }
    match names.as_slice() {
        [only] if only == "ALL" => Ok(all.clone()),
        [only] if only == "NONE" => Ok(Offer::NONE),
        [] => Err(wrong(format!("no {what} is named; NONE means none of them"))),
        _ if names.iter().any(|name| ["ALL", "NONE"].contains(&name.as_str())) => {
            Err(wrong("ALL and NONE stand alone".to_owned()))
        }
        _ => Ok(Offer::Only(names)),
    }
}

fn drivers(read: Read<'_>, exists: &dyn Fn(&str) -> bool) -> Result<Vec<String>, String> {
    let Some((key, value)) = value(read, &[c"sealane-drivers"])? else { return Ok(Vec::new()) };
    match words(&value).find(|name| !exists(name)) {
        Some(name) => Err(format!("{key} = {value}: no driver {name} serves an algorithm of this provider")),
        None => Ok(words(&value).map(str::to_owned).collect()),
    }
}

/// The socket of the keeper. The environment has no say: that of a program with set-user-ID is its caller's.
fn keeper(read: Read<'_>) -> Result<PathBuf, String> {
    let Some((key, value)) = value(read, &[c"sealane-keeper"])? else { return Ok(PathBuf::from(SOCKET)) };
    let path = PathBuf::from(&value);
    if !path.is_absolute() {
        return Err(format!("{key} = {value}: the socket of the keeper is a path from / on"));
    }
    // As long as the kernel takes it (`sockaddr_un`).
    if value.len() > 107 {
        return Err(format!("{key} = {value}: the path of a socket has 107 bytes at most"));
    }
    Ok(path)
}

fn connects_at_load(read: Read<'_>) -> Result<bool, String> {
    let Some((key, value)) = value(read, &[c"sealane-keeper-connect"])? else { return Ok(false) };
    match value.as_str() {
        "use" => Ok(false),
        "load" => Ok(true),
        _ => Err(format!("{key} = {value}: it is use or load")),
    }
}

/// The operations of which nothing is offered, whatever the lists of algorithms say.
fn blocked(read: Read<'_>) -> Result<Vec<OfferOf>, String> {
    let Some((key, value)) = value(read, &[c"sealane-block-operations"])? else { return Ok(Vec::new()) };
    words(&value)
        .map(|word| {
            let operation = OPERATIONS.iter().find(|(name, _)| name.eq_ignore_ascii_case(word));
            operation.map(|(_, offer_of)| *offer_of).ok_or_else(|| {
                let names = OPERATIONS.map(|(name, _)| name).join(", ");
                format!("{key} = {value}: there is no operation {word} here, only {names}")
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The value of a key of a section.
    fn value_in(section: &[(&str, &str)], key: &CStr) -> Option<String> {
        section.iter().find(|(k, _)| key.to_bytes() == k.as_bytes()).map(|(_, value)| (*value).to_owned())
    }

    fn read(section: &[(&str, &str)]) -> Result<Settings, String> {
        read_with(section, Home::Process)
    }

    fn read_with(section: &[(&str, &str)], home: Home) -> Result<Settings, String> {
        let known = Names {
            cipher: &|name| ["AES-128-CBC", "AES-256-GCM"].contains(&name),
            digest: &|name| name == "SHA256",
            mac: &|name| name == "HMAC",
        };
        Settings::read(&|key| value_in(section, key), home, &known, &|name| name == "cbc-aes-awslc")
    }

    #[test]
    fn keys_have_a_home() {
        let read = |section: &[(&str, &str)]| Home::read(&|key| value_in(section, key));
        let lock = Lock::ProtectionKey;
        let guarded = |len| Ok(Home::Guarded { len, lock, is_strict: false });
        assert_eq!(read(&[]), Ok(Home::Process));
        assert_eq!(read(&[("sealane-keys", "process")]), Ok(Home::Process));
        assert_eq!(read(&[("sealane-keys", "guarded")]), guarded(None));
        assert_eq!(read(&[("sealane-keys", "guarded-strict")]), Ok(Home::Guarded { len: None, lock, is_strict: true }));
        let closed = Home::Guarded { len: None, lock: Lock::Mprotect, is_strict: false };
        assert_eq!(read(&[("sealane-keys", "guarded-mprotect")]), Ok(closed));
        for (text, len) in [("65536", 64 << 10), ("64K", 64 << 10), ("16M", 16 << 20), ("2G", 2 << 30)] {
            assert_eq!(read(&[("sealane-keys", "guarded"), ("sealane-guarded-memory", text)]), guarded(Some(len)));
        }
        let wrong =
            ["", "M", "63K", "-1", "+64K", "4m", "4 M", "4MB", "65G", "99999999999999999999", "18446744073709551615G"];
        for text in wrong {
            let refused = read(&[("sealane-keys", "guarded"), ("sealane-guarded-memory", text)]).unwrap_err();
            let why = "it is a number of bytes, or of K, M or G, from 64K to 64G";
            assert_eq!(refused, format!("sealane-guarded-memory = {text}: {why}"));
        }
        assert_eq!(read(&[("sealane-keys", "keeper")]), Ok(Home::Keeper));
        for home in [&[][..], &[("sealane-keys", "process")], &[("sealane-keys", "keeper")]] {
            let refused = read(&[home, &[("sealane-guarded-memory", "4M")]].concat()).unwrap_err();
            assert_eq!(refused, "sealane-guarded-memory = 4M: this memory is for sealane-keys = guarded");
        }
        let refused = read(&[("sealane-keys", "Guarded")]).unwrap_err();
        assert_eq!(
            refused,
            "sealane-keys = Guarded: it is process, guarded, guarded-strict, guarded-mprotect or keeper"
        );
    }

    #[test]
    fn the_generator_of_random_numbers_gets_no_guarded_key_unless_asked_for() {
        let guarded = Home::Guarded { len: None, lock: Lock::ProtectionKey, is_strict: false };
        let has = |settings: &Settings, name: &str| settings.ciphers.has(|other| other == name);
        let settings = read_with(&[], guarded).unwrap();
        assert!(!has(&settings, "AES-256-ECB") && !has(&settings, "AES-128-ECB") && has(&settings, "AES-256-CTR"));
        assert!(!has(&read_with(&[("CIPHERS", "ALL")], guarded).unwrap(), "AES-256-ECB"));
        // The names here are those that the test has.
        assert!(has(&read_with(&[("CIPHERS", "AES-128-CBC")], guarded).unwrap(), "AES-128-CBC"));
        assert!(has(&read(&[]).unwrap(), "AES-256-ECB"));
        // It gets none of its ciphers if it would ask the keeper.
        let settings = read_with(&[], Home::Keeper).unwrap();
        assert!(!has(&settings, "AES-256-ECB") && !has(&settings, "AES-256-CTR") && has(&settings, "AES-128-CTR"));
    }

    #[test]
    fn ciphers_and_macs_are_offered_and_digests_are_asked_for() {
        let settings = read(&[]).unwrap();
        assert!(settings.ciphers.has(|_| false) && settings.macs.has(|_| false) && !settings.digests.has(|_| true));
        let settings = read(&[("CIPHERS", "AES-128-CBC:1024, AES-256-GCM"), ("DIGESTS", "ALL")]).unwrap();
        assert!(settings.ciphers.has(|name| name == "AES-128-CBC") && !settings.ciphers.has(|name| name == "other"));
        assert!(settings.digests.has(|_| false));
        assert_eq!(read(&[("sealane-macs", "NONE")]).unwrap().macs, Offer::Only(Vec::new()));
        assert_eq!(read(&[("sealane-drivers", "cbc-aes-awslc")]).unwrap().drivers, ["cbc-aes-awslc"]);
    }

    #[test]
    fn the_keeper_has_a_place_and_a_time() {
        let settings = read(&[]).unwrap();
        assert_eq!((settings.keeper, settings.connects_at_load), (PathBuf::from(SOCKET), false));
        let settings = read(&[("sealane-keeper", "/run/k"), ("sealane-keeper-connect", "load")]).unwrap();
        assert_eq!((settings.keeper, settings.connects_at_load), (PathBuf::from("/run/k"), true));
        let long = format!("/{}", "x".repeat(107));
        let refused = read(&[("sealane-keeper", &long)]).unwrap_err();
        assert_eq!(refused, format!("sealane-keeper = {long}: the path of a socket has 107 bytes at most"));
    }

    #[test]
    fn nothing_of_a_blocked_operation_is_offered() {
        let settings =
            read(&[("sealane-block-operations", "MAC, cipher"), ("CIPHERS", "ALL"), ("DIGESTS", "ALL")]).unwrap();
        assert_eq!((settings.ciphers, settings.macs, settings.digests), (Offer::NONE, Offer::NONE, Offer::All));
        let settings = read(&[("sealane-block-operations", "store asym-cipher")]).unwrap();
        assert_eq!((settings.stores, settings.asym_ciphers), (Offer::NONE, Offer::NONE));
        assert_eq!((settings.keys, settings.signatures), (Offer::All, Offer::All));
        assert_eq!(read(&[("sealane-block-operations", "")]).unwrap(), read(&[]).unwrap());
        let both = [("sealane-block-operations", "digest"), ("DIGESTS", "SHA255")];
        assert_eq!(read(&both).unwrap_err(), "DIGESTS = SHA255: there is no digest SHA255 here");
    }

    #[test]
    fn mistakes_name_key_and_value() {
        for (key, value, why) in [
            ("sealane-ciphers", "AES-128-CBC,AES-129-CBC", "there is no cipher AES-129-CBC here"),
            ("DIGESTS", "SHA256:many", "SHA256:many: the size after the colon is a number of bytes"),
            ("sealane-macs", "ALL HMAC", "ALL and NONE stand alone"),
            ("CIPHERS", " , ", "no cipher is named; NONE means none of them"),
            (
                "sealane-block-operations",
                "cipher kem",
                "there is no operation kem here, only cipher, digest, mac, store, keymgmt, signature, asym-cipher, skeymgmt",
            ),
            ("sealane-keeper", "keeper", "the socket of the keeper is a path from / on"),
            ("sealane-keeper-connect", "now", "it is use or load"),
            ("sealane-drivers", "cbc-aes-nobody", "no driver cbc-aes-nobody serves an algorithm of this provider"),
        ] {
            assert_eq!(read(&[(key, value)]).unwrap_err(), format!("{key} = {value}: {why}"));
        }
        let slip = read(&[("sealane-guarded", "4M")]).unwrap_err();
        assert_eq!(slip, "sealane-guarded = 4M: there is no key sealane-guarded here; sealane-guarded-memory is meant");
        let slip = read(&[("sealane-cipher", "NONE")]).unwrap_err();
        assert_eq!(slip, "sealane-cipher = NONE: there is no key sealane-cipher here; sealane-ciphers is meant");
        let twice = read(&[("CIPHERS", "ALL"), ("sealane-ciphers", "ALL")]).unwrap_err();
        assert_eq!(twice, "sealane-ciphers and CIPHERS mean the same; only one of them may be there");
    }
}
