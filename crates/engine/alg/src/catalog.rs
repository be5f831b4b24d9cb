//! The names of each kernel's algorithms, and the algorithms that it exposes.
//!
//! The names of a kernel are data, recorded from it by `profiles/record.py`: the names that bind, the errnos of the
//! others, and the rows of its `/proc/crypto`. A name that was not tried there does not bind.

use crate::rules::Rules;
use core::sync::atomic::{AtomicU32, Ordering::Relaxed};
use sealane_abi::{Caller, Errno, Profile};
use sealane_crypto::{Alg, Kind, LookupError, Registry};
use std::collections::BTreeMap;

const LINUX_6_1: &str = include_str!("../profiles/linux-6.1.txt");
const LINUX_6_12: &str = include_str!("../profiles/linux-6.12.txt");
const LINUX_7_3: &str = include_str!("../profiles/linux-7.3.txt");

/// The names that bind under a profile.
pub struct Catalog {
    profile: Profile,
    rows: Vec<KernelRow>,
    binds: BTreeMap<(Kind, &'static str), Result<(), Errno>>,
    /// Driver name to generic name.
    generic: BTreeMap<(Kind, &'static str), &'static str>,
    /// Instances made so far.
    made: &'static AtomicU32,
}

/// A row of the imitated kernel's `/proc/crypto`.
pub struct KernelRow {
    /// Algorithm.
    pub name: &'static str,
    /// Driver.
    pub driver: &'static str,
    /// The rest, `FIELD=VALUE` in the kernel's order.
    fields: &'static str,
    /// Whether it is there from boot on.
    boot: bool,
    /// When it came, and `cra_priority`: words of the host, as all processes have the same rows.
    words: &'static [AtomicU32; ROW_WORDS],
}

/// The words of a row that change.
const ROW_WORDS: usize = 2;

/// The words of a row that is only looked up.
static NO_WORDS: [AtomicU32; ROW_WORDS] = [const { AtomicU32::new(0) }; ROW_WORDS];

impl KernelRow {
    /// The fields and their values, in the kernel's order, `flags` last.
    pub fn fields(&self) -> impl Iterator<Item = (&'static str, &'static str)> {
        self.fields.split(' ').filter_map(|f| f.split_once('='))
    }

    /// One of its fields.
    #[must_use]
    pub fn field(&self, name: &str) -> Option<&'static str> {
        self.fields().find(|(k, _)| *k == name).map(|(_, v)| v)
    }

    /// One of its fields as a number, decimal or with `0x`; 0 when it is not there.
    #[must_use]
    pub fn number(&self, name: &str) -> u32 {
        let text = self.field(name).unwrap_or("");
        match text.strip_prefix("0x") {
            Some(hex) => u32::from_str_radix(hex, 16).unwrap_or(0),
            None => text.parse().unwrap_or(0),
        }
    }

    /// The AF_ALG type under which it binds.
    #[must_use]
    pub fn kind(&self) -> Option<Kind> {
        match self.field("type")? {
            "shash" | "ahash" => Some(Kind::Hash),
            "skcipher" | "lskcipher" => Some(Kind::Skcipher),
            "aead" => Some(Kind::Aead),
            "rng" => Some(Kind::Rng),
            _ => None,
        }
    }

    /// Whether the kernel has it now.
    #[must_use]
    pub fn is_live(&self) -> bool {
        self.since() != 0
    }

    /// When it came: 0 not yet, 1 at boot, later ones in order of their making.
    #[must_use]
    pub fn since(&self) -> u32 {
        self.words[0].load(Relaxed)
    }

    pub(crate) fn set_since(&self, since: u32) {
        self.words[0].store(since, Relaxed);
    }

    /// `cra_priority`, which NETLINK_CRYPTO can change.
    #[must_use]
    pub fn priority(&self) -> i32 {
        self.words[1].load(Relaxed) as i32
    }

    pub(crate) fn set_priority(&self, priority: i32) {
        self.words[1].store(priority as u32, Relaxed);
    }
}

/// The AF_ALG type with this name.
#[must_use]
pub(crate) fn kind_named(name: &[u8]) -> Option<Kind> {
    match name {
        b"hash" => Some(Kind::Hash),
        b"skcipher" => Some(Kind::Skcipher),
        b"aead" => Some(Kind::Aead),
        b"rng" => Some(Kind::Rng),
        _ => None,
    }
}

/// The allowlist of Linux 7.3 (`af_alg_restrict=1`): type, name, and whether callers without privilege get it too.
const ALLOWLIST: [(Kind, &str, bool); 29] = [
    (Kind::Hash, "cmac(aes)", false),
    (Kind::Hash, "hmac(md5)", false),
    (Kind::Hash, "hmac(sha1)", false),
    (Kind::Hash, "hmac(sha224)", false),
    (Kind::Hash, "hmac(sha256)", false),
    (Kind::Hash, "hmac(sha384)", false),
    (Kind::Hash, "hmac(sha512)", false),
    (Kind::Hash, "md4", false),
    (Kind::Hash, "md5", false),
    (Kind::Hash, "sha1", true),
    (Kind::Hash, "sha224", false),
    (Kind::Hash, "sha256", false),
    (Kind::Hash, "sha384", false),
    (Kind::Hash, "sha512", false),
    (Kind::Skcipher, "adiantum(xchacha12,aes)", true),
    (Kind::Skcipher, "adiantum(xchacha20,aes)", true),
    (Kind::Skcipher, "cbc(aes)", false),
    (Kind::Skcipher, "cbc(des)", false),
    (Kind::Skcipher, "cbc(des3_ede)", false),
    (Kind::Skcipher, "cbc(paes)", false),
    (Kind::Skcipher, "ctr(aes)", false),
    (Kind::Skcipher, "ecb(aes)", false),
    (Kind::Skcipher, "ecb(des)", false),
    (Kind::Skcipher, "hctr2(aes)", true),
    (Kind::Skcipher, "xts(aes)", true),
    (Kind::Skcipher, "xts(camellia)", true),
    (Kind::Skcipher, "xts(serpent)", true),
    (Kind::Skcipher, "xts(twofish)", true),
    (Kind::Aead, "ccm(aes)", false),
];

impl Catalog {
    /// The names of `profile`. `words` gives words that begin as zeros, for what changes.
    #[must_use]
    pub fn new(profile: Profile, words: impl FnOnce(usize) -> &'static [AtomicU32]) -> Self {
        let text = match profile {
            // Everything of the registry; the transcripts serve as a list of further names, which is read when needed.
            Profile::Open => "",
            Profile::Linux6_1 => LINUX_6_1,
            Profile::Linux6_12 => LINUX_6_12,
            Profile::Linux7_3 | Profile::Linux7_3Restricted => LINUX_7_3,
        };
        let mut rows: Vec<KernelRow> = text.lines().filter_map(read_row).collect();
        let words = words(1 + rows.len() * ROW_WORDS);
        let (made, words) = words.split_first().unwrap_or((&NO_WORDS[0], &[]));
        made.store(1, Relaxed);
        for (row, words) in rows.iter_mut().zip(words.as_chunks().0) {
            row.words = words;
            row.set_since(u32::from(row.boot));
            row.set_priority(row.field("priority").and_then(|p| p.parse().ok()).unwrap_or(0));
        }
        let generic = rows.iter().filter_map(|r| Some(((r.kind()?, r.driver), r.name))).collect();
        Catalog { profile, rows, binds: text.lines().filter_map(read_bind).collect(), generic, made }
    }

    /// The imitated kernel's rows, as recorded: those at boot, then those that binds make. Empty for the open profile.
    #[must_use]
    pub fn rows(&self) -> &[KernelRow] {
        &self.rows
    }

    /// The rows that the kernel has now, in the order of `/proc/crypto`: the latest instance first.
    #[must_use]
    pub fn live_rows(&self) -> Vec<&KernelRow> {
        let mut live: Vec<&KernelRow> = self.rows.iter().filter(|r| r.is_live()).collect();
        live.sort_by_key(|r| core::cmp::Reverse(r.since()));
        live
    }

    /// The names that bind, and those that fail with another number than `ENOENT`.
    pub fn binds(&self) -> impl Iterator<Item = (Kind, &'static str, Result<(), Errno>)> {
        self.binds.iter().map(|((kind, name), done)| (*kind, *name, *done))
    }

    pub(crate) fn resolve(&self, registry: &Registry, kind: Kind, name: &str, caller: Caller) -> Result<Alg, Errno> {
        if self.profile == Profile::Linux7_3Restricted && !allowed(kind, name, caller) {
            return Err(Errno::ENOENT);
        }
        if self.profile == Profile::Open {
            return lookup(registry, kind, name).or_else(|e| open_alias(registry, kind, name).unwrap_or(Err(e)));
        }
        if let (None, Some(plain)) = (self.binds.get(&(kind, name)), self.over_driver(kind, name)) {
            return lookup(registry, kind, &plain);
        }
        self.binds.get(&(kind, name)).copied().unwrap_or_else(|| Err(self.refusal_of(kind, name)))?;
        let generic = self.generic.get(&(kind, name)).copied();
        let alg = match generic {
            // A generator's driver names are algorithms of their own: all of them are "stdrng".
            Some(generic) => lookup(registry, kind, name).or_else(|_| lookup(registry, kind, generic)),
            None => lookup(registry, kind, name),
        }?;
        self.make(kind, name);
        Ok(alg)
    }

    /// The generic name of a simple template over one driver that was not tried, as `cbc(aes-generic)`.
    fn over_driver(&self, kind: Kind, name: &str) -> Option<String> {
        let template = template_of(name)?;
        // The others look for parts of their own by the driver's name.
        if !["ecb", "cbc", "ctr", "hmac", "cmac", "xcbc", "cbcmac"].contains(&template) {
            return None;
        }
        let driver = name.get(template.len() + 1..)?.strip_suffix(')')?;
        let row = self.rows.iter().find(|r| r.driver == driver && r.is_live())?;
        let plain = format!("{template}({})", row.name);
        matches!(self.binds.get(&(kind, plain.as_str())), Some(Ok(()))).then_some(plain)
    }

    /// The number for a name that was not tried.
    fn refusal_of(&self, kind: Kind, name: &str) -> Errno {
        let Some(whole) = without_rest(name) else { return self.refusal(kind, name) };
        // Linux 6.1 finds no instance of the longer name. Later kernels try once more, and find that the one which they
        // have made is there.
        if !Rules::of(self.profile).template_errors {
            return Errno::ENOENT;
        }
        match self.binds.get(&(kind, whole)) {
            Some(Ok(())) => {
                self.make(kind, whole);
                Errno::EEXIST
            }
            Some(Err(errno)) => *errno,
            None => self.refusal(kind, name),
        }
    }

    /// The number for a name that was not tried: a template that is there looks at the type before anything else, which 6.1
    /// does not tell.
    fn refusal(&self, kind: Kind, name: &str) -> Errno {
        let Some(template) = template_of(name).filter(|_| Rules::of(self.profile).template_errors) else {
            return Errno::ENOENT;
        };
        let mut makes = self.binds.iter().filter(|((_, n), done)| done.is_ok() && template_of(n) == Some(template));
        // One that makes the type, too, then looks for its parts.
        match makes.clone().next().is_some() && makes.all(|((k, _), _)| *k != kind) {
            true => Errno::EINVAL,
            false => Errno::ENOENT,
        }
    }

    /// Whether the kernel serves this cipher by an `lskcipher`, which forgets its key whatever is wrong with the next
    /// one.
    pub(crate) fn is_lskcipher(&self, name: &str) -> bool {
        // CBC over a cipher of single blocks is made over its ECB (lskcipher_alloc_instance_simple in crypto/lskcipher.c).
        let inner = name.strip_prefix("cbc(").and_then(|rest| rest.strip_suffix(')'));
        let over_ecb = inner.map(|inner| format!("cbc(ecb({inner}))"));
        let is_its = |driver: &str| driver == name || over_ecb.as_deref() == Some(driver);
        let of_name =
            self.rows.iter().filter(|r| r.kind() == Some(Kind::Skcipher) && (r.name == name || is_its(r.driver)));
        let best = of_name.max_by_key(|r| r.priority());
        best.is_some_and(|r| r.field("type") == Some("lskcipher"))
    }

    /// Makes an instance on demand of NETLINK_CRYPTO; `None` when the imitated kernel or the registry has no such name.
    pub(crate) fn instantiate(&self, registry: &Registry, kind: Kind, name: &str) -> Option<()> {
        match self.profile {
            Profile::Open => lookup(registry, kind, name).ok().map(|_| ()),
            _ => {
                self.binds.get(&(kind, name))?.ok()?;
                self.make(kind, name);
                Some(())
            }
        }
    }

    /// Lets the instance that a bind makes appear among the rows.
    pub(crate) fn make(&self, kind: Kind, name: &str) {
        let mut of_name = self.rows.iter().filter(|r| r.kind() == Some(kind) && (r.name == name || r.driver == name));
        if let Some(first) = of_name.clone().next()
            && of_name.all(|r| !r.is_live())
        {
            first.set_since(self.made.fetch_add(1, Relaxed).wrapping_add(1).max(2));
        }
    }
}

fn lookup(registry: &Registry, kind: Kind, name: &str) -> Result<Alg, Errno> {
    registry.lookup(kind, name).map_err(|e| match e {
        LookupError::Name { .. } | LookupError::NotFound => Errno::ENOENT,
        LookupError::SelfTest(_) => Errno::ELIBBAD,
    })
}

/// Resolves a name that the registry does not have, for the open profile: a driver name of any kernel stands for its
/// algorithm, and a name that Linux 7.3 refuses with a special errno is refused with it.
fn open_alias(registry: &Registry, kind: Kind, name: &str) -> Option<Result<Alg, Errno>> {
    let kernels = [LINUX_7_3, LINUX_6_12, LINUX_6_1];
    let row = kernels
        .iter()
        .flat_map(|k| k.lines())
        .filter_map(read_row)
        .find(|r| r.driver == name && r.kind() == Some(kind));
    if let Some(row) = row {
        return Some(lookup(registry, kind, row.name));
    }
    let bind = LINUX_7_3.lines().filter_map(read_bind).find(|((k, n), _)| *k == kind && *n == name)?;
    bind.1.err().map(Err)
}

/// The template of a name with arguments.
fn template_of(name: &str) -> Option<&str> {
    split_template(name).map(|(template, _)| template)
}

/// The name without what follows the parenthesis that closes it, if anything does.
fn without_rest(name: &str) -> Option<&str> {
    split_template(name).map(|(_, whole)| whole).filter(|whole| whole.len() < name.len())
}

/// The template of a name with arguments, and the name up to the parenthesis that closes it, read as the kernel reads it
/// (`crypto/algboss.c`): what follows is not looked at.
fn split_template(name: &str) -> Option<(&str, &str)> {
    let word = |text: &str| text.bytes().take_while(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_')).count();
    let head = word(name);
    let mut rest = name.get(head..)?.strip_prefix('(').filter(|_| head > 0)?;
    loop {
        let mut arg = word(rest);
        if rest.as_bytes().get(arg) == Some(&b'(') {
            let mut depth = 0;
            let close = rest.bytes().enumerate().skip(arg).find(|(_, b)| {
                depth += i32::from(*b == b'(') - i32::from(*b == b')');
                depth == 0
            });
            arg = close?.0 + 1;
        }
        match rest.as_bytes().get(arg)? {
            b')' if arg > 0 => return name.get(..head).zip(name.get(..name.len() - rest.len() + arg + 1)),
            b',' if arg > 0 => rest = rest.get(arg + 1..)?,
            _ => return None,
        }
    }
}

fn read_row(line: &'static str) -> Option<KernelRow> {
    let (word, rest) = line.split_once(' ')?;
    let boot = match word {
        "row" => true,
        "made" => false,
        _ => return None,
    };
    let (name, rest) = rest.split_once(' ')?;
    let (driver, fields) = rest.split_once(' ')?;
    Some(KernelRow { name, driver, fields, boot, words: &NO_WORDS })
}

/// A name and what a bind of it gives.
type Bind = ((Kind, &'static str), Result<(), Errno>);

fn read_bind(line: &'static str) -> Option<Bind> {
    let mut words = line.strip_prefix("bind ")?.split(' ');
    let kind = kind_named(words.next()?.as_bytes())?;
    let name = words.next()?;
    let done = match words.next() {
        None => Ok(()),
        Some(errno) => Err(Errno::from_name(errno)?),
    };
    Some(((kind, name), done))
}

/// Whether Linux 7.3 with `af_alg_restrict=1` lets `caller` bind this name.
#[must_use]
pub fn allowed(kind: Kind, name: &str, caller: Caller) -> bool {
    ALLOWLIST.iter().any(|(k, n, open)| *k == kind && *n == name && (*open || caller.privileged))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transcripts_are_read_without_rest() {
        for (text, rows, binds) in [(LINUX_6_1, 1000, 2000), (LINUX_6_12, 200, 400), (LINUX_7_3, 140, 350)] {
            let (mut got_rows, mut got_binds) = (0, 0);
            for line in text.lines().filter(|l| !l.starts_with('#')) {
                match (read_row(line), read_bind(line)) {
                    (Some(row), None) => {
                        got_rows += 1;
                        assert!(row.fields.split(' ').all(|f| f.contains('=')), "{line}");
                    }
                    (None, Some(_)) => got_binds += 1,
                    _ => panic!("{line}"),
                }
            }
            assert!(got_rows >= rows && got_binds >= binds, "{got_rows} rows, {got_binds} binds");
        }
    }

    fn words(n: usize) -> &'static [AtomicU32] {
        (0..n).map(|_| AtomicU32::new(0)).collect::<Vec<_>>().leak()
    }

    #[test]
    fn cbc_over_a_cipher_is_made_over_its_ecb() {
        for (profile, name, is_one) in [
            (Profile::Linux6_12, "cbc(aes)", true),
            (Profile::Linux6_12, "cbc(ecb(aes-generic))", true),
            (Profile::Linux6_12, "cbc(aes-generic)", true),
            (Profile::Linux7_3, "cbc(aes-lib)", true),
            (Profile::Linux6_12, "ctr(aes-generic)", false),
            (Profile::Linux6_1, "cbc(aes-generic)", false),
        ] {
            assert_eq!(Catalog::new(profile, words).is_lskcipher(name), is_one, "{name}");
        }
    }

    #[test]
    fn templates_refuse_other_types() {
        let catalog = Catalog::new(Profile::Linux7_3, words);
        let cases = [
            (Kind::Hash, "cbc(aes)", Errno::EINVAL),
            (Kind::Aead, "cbc(nonesuch)x", Errno::EINVAL),
            (Kind::Hash, "gcm(cbc(aes),x)", Errno::EINVAL),
            (Kind::Skcipher, "cbc(nonesuch)", Errno::ENOENT),
            (Kind::Hash, "cbc(aes", Errno::ENOENT),
            (Kind::Hash, "cbc(", Errno::ENOENT),
            (Kind::Hash, "cbc()", Errno::ENOENT),
            (Kind::Hash, "cbc(aes,)", Errno::ENOENT),
            (Kind::Hash, "cbc", Errno::ENOENT),
            (Kind::Hash, "nonesuch(aes)", Errno::ENOENT),
        ];
        for (kind, name, errno) in cases {
            assert_eq!(catalog.refusal(kind, name), errno, "{name}");
            assert_eq!(Catalog::new(Profile::Linux6_1, words).refusal(kind, name), Errno::ENOENT, "{name}");
        }
    }

    /// As three kernels answered for each name with a template in their transcripts, followed by `x`, `)`, `(y)`, `,z` and a blank.
    #[test]
    fn what_follows_a_template_is_not_looked_at() {
        let registry = sealane_crypto_portable::registry();
        for (profile, past) in [(Profile::Linux6_1, false), (Profile::Linux6_12, true), (Profile::Linux7_3, true)] {
            let catalog = Catalog::new(profile, words);
            let bind = |kind, name: &str| {
                catalog.resolve(&registry, kind, name, Caller { privileged: true }).map(|_| ()).unwrap_err()
            };
            for rest in ["x", ")", "(y)", ",z", " "] {
                for (kind, name, errno) in [
                    (Kind::Skcipher, "cbc(aes)", Errno::EEXIST),
                    (Kind::Hash, "hmac(sha256)", Errno::EEXIST),
                    (Kind::Aead, "authenc(hmac(md5),cbc(des3_ede))", Errno::EEXIST),
                    (Kind::Hash, "cbc(aes)", Errno::EINVAL),
                    (Kind::Skcipher, "cbc(nonexist)", Errno::ENOENT),
                    (Kind::Skcipher, "nonexist(aes)", Errno::ENOENT),
                ] {
                    let name = format!("{name}{rest}");
                    assert_eq!(bind(kind, &name), if past { errno } else { Errno::ENOENT }, "{profile}: {name}");
                }
            }
            // Inside it is.
            assert_eq!(bind(Kind::Aead, "authenc(hmac(sha1)x,cbc(aes))"), Errno::ENOENT);
            // The instance is there from then on.
            let made = catalog.live_rows().iter().any(|row| row.name == "authenc(hmac(md5),cbc(des3_ede))");
            assert_eq!(made, past, "{profile}");
        }
    }

    #[test]
    fn the_rule_for_templates_agrees_with_the_transcripts() {
        for profile in [Profile::Linux6_1, Profile::Linux6_12, Profile::Linux7_3] {
            let catalog = Catalog::new(profile, words);
            let wrong = catalog
                .binds()
                .filter(|(kind, name, done)| {
                    catalog.refusal(*kind, name) == Errno::EINVAL && *done != Err(Errno::EINVAL)
                })
                .collect::<Vec<_>>();
            assert!(wrong.is_empty(), "{profile}: {wrong:?}");
        }
    }

    #[test]
    fn instances_come_first_and_once() {
        let catalog = Catalog::new(Profile::Linux7_3, words);
        let boot = catalog.live_rows().len();
        catalog.make(Kind::Hash, "sha256");
        assert_eq!(catalog.live_rows().len(), boot, "it is there from boot");
        catalog.make(Kind::Skcipher, "cbc(des)");
        catalog.make(Kind::Skcipher, "cbc(des)");
        let live = catalog.live_rows();
        assert_eq!((live.len(), live[0].name), (boot + 1, "cbc(des)"));
    }
}
