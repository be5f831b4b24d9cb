//! The arguments of `sealane keeper` and `sealane key ...`.

use super::kind::KindArg;
use super::rust_log::RUST_LOG;
use clap::{Args, Subcommand, ValueHint};
use std::path::PathBuf;

/// Hold keys, and compute with them for other programs.
///
/// Keys are in this process and, sealed, in the folder that the configuration names. Programs use them by name, over a socket:
/// users and groups of each key say who may. Every use and every refusal is in the log, without secrets.
#[derive(Debug, Args)]
#[command(after_help = format!(
    "Example:\n  sealane keeper --config /etc/sealane/keeper.toml\n\n{RUST_LOG}\n\nExit status: 0 it ended on SIGTERM or SIGINT; 2 \
     it could not start."
))]
pub(crate) struct Keeper {
    /// The configuration file.
    #[arg(long, value_name = "FILE", default_value = "/etc/sealane/keeper.toml", value_hint = ValueHint::FilePath)]
    pub(crate) config: PathBuf,
}

/// Make, show and revoke keys of the keeper.
///
/// Secrets never come from the command line: the keeper makes them, or they are read from a file, a descriptor or the kernel's
/// keyrings. No command shows them; 'public' shows the public part of a private key.
#[derive(Debug, Subcommand)]
pub(crate) enum Key {
    Generate(Generate),
    Import(Import),
    List(ListKeys),
    Show(ShowKey),
    Public(PublicKey),
    Revoke(Revoke),
    Rotate(Rotate),
}

/// The arguments common to all.
#[derive(Debug, Args)]
pub(crate) struct ToKeeper {
    /// The socket of the keeper. The default is the value of SEALANE_KEEPER, or /run/sealane-keeper/socket if it is not set.
    #[arg(long, value_name = "SOCKET", value_hint = ValueHint::FilePath)]
    pub(crate) socket: Option<PathBuf>,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

/// The rules of a new key.
#[derive(Debug, Args)]
pub(crate) struct Rules {
    /// Its name: letters, digits, '.', '_' and '-'.
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
    /// The type of the algorithm, where several have this name.
    #[arg(long = "type", value_enum)]
    pub(crate) kind: Option<KindArg>,
    /// The uses, separated by commas: encrypt, decrypt, caller-nonce, mac, verify, sign. The default is all that the algorithm can
    /// but caller-nonce.
    #[arg(long, value_name = "USES")]
    pub(crate) uses: Option<String>,
    /// The time after which nothing is encrypted, authenticated or signed with it: a number and s, m, h or d.
    #[arg(long, value_name = "TIME")]
    pub(crate) expires_in: Option<String>,
    /// The most bytes for one version.
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true)]
    pub(crate) limit_bytes: u64,
    /// The most operations with one version.
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true)]
    pub(crate) limit_operations: u64,
    /// The most operations in a second.
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true)]
    pub(crate) limit_rate: u32,
    /// A user, by number, that may use it; this user if neither users nor groups are given.
    #[arg(long = "user", value_name = "UID")]
    pub(crate) users: Vec<u32>,
    /// A group, by number, whose members may use it.
    #[arg(long = "group", value_name = "GID")]
    pub(crate) groups: Vec<u32>,
    /// A user, by number, that may administer it, beside the keeper's administrators.
    #[arg(long = "admin-user", value_name = "UID")]
    pub(crate) admin_users: Vec<u32>,
    /// A group, by number, whose members may administer it.
    #[arg(long = "admin-group", value_name = "GID")]
    pub(crate) admin_groups: Vec<u32>,
}

/// The source of a secret.
#[derive(Debug, Args)]
#[group(multiple = false)]
pub(crate) struct SecretFrom {
    /// Read the secret from a file, as it is. A private key is in PEM or DER: PKCS #8, PKCS #1 or SEC 1, without a passphrase;
    /// certificates may stand beside it.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) file: Option<PathBuf>,
    /// Read the secret from an open descriptor.
    #[arg(long, value_name = "N")]
    pub(crate) fd: Option<u32>,
    /// Read the secret from the kernel's key with this serial number, of type user.
    #[arg(long, value_name = "SERIAL")]
    pub(crate) keyring: Option<i32>,
}

/// Make a key from random bytes.
///
/// RSA keys take some seconds.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  sealane key generate backup --algorithm 'gcm(aes)' --uses encrypt --user 1000\n  \
                        sealane key generate web --algorithm ec-p256 --group 33"
)]
pub(crate) struct Generate {
    #[command(flatten)]
    pub(crate) rules: Rules,
    /// The algorithm: one that 'sealane crypto list' names, or for a private key rsa-2048, rsa-3072, rsa-4096, ec-p256, ec-p384 or
    /// ed25519.
    #[arg(long, short, value_name = "ALGORITHM")]
    pub(crate) algorithm: String,
    /// The length of the secret in bytes. The default is the longest one, or that of a MAC's tag.
    #[arg(long, value_name = "BYTES", default_value_t = 0, hide_default_value = true)]
    pub(crate) length: u32,
    #[command(flatten)]
    pub(crate) keeper: ToKeeper,
}

/// Give the keeper a key.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  sealane key import peer --algorithm 'hmac(sha256)' --file peer.key\n  \
                        sealane key import web --file /etc/ssl/private/web.pem --group 33")]
pub(crate) struct Import {
    #[command(flatten)]
    pub(crate) rules: Rules,
    /// The algorithm, as for 'generate'. Without it the secret is a private key, which says itself what it is.
    #[arg(long, short, value_name = "ALGORITHM")]
    pub(crate) algorithm: Option<String>,
    #[command(flatten)]
    pub(crate) from: SecretFrom,
    #[command(flatten)]
    pub(crate) keeper: ToKeeper,
}

/// List the keys that this user may use or administer.
#[derive(Debug, Args)]
pub(crate) struct ListKeys {
    #[command(flatten)]
    pub(crate) keeper: ToKeeper,
}

/// Show the rules and versions of a key.
#[derive(Debug, Args)]
pub(crate) struct ShowKey {
    /// The key.
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
    #[command(flatten)]
    pub(crate) keeper: ToKeeper,
}

/// Print the public part of a private key.
///
/// It is a PEM document (SubjectPublicKeyInfo), as 'openssl pkey -pubin' reads it.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  sealane key public web | openssl pkey -pubin -noout -text")]
pub(crate) struct PublicKey {
    /// The key.
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
    /// The version; the newest one if none is given.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) only: Option<u32>,
    /// Print DER.
    #[arg(long, conflicts_with = "json")]
    pub(crate) der: bool,
    #[command(flatten)]
    pub(crate) keeper: ToKeeper,
}

/// Destroy the secret of a version, or of all versions of a key.
#[derive(Debug, Args)]
pub(crate) struct Revoke {
    /// The key.
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
    /// The version to destroy; all of them if none is given.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) only: Option<u32>,
    #[command(flatten)]
    pub(crate) keeper: ToKeeper,
}

/// Make a new version of a key; the former ones still open and check what they made, until they are revoked.
#[derive(Debug, Args)]
pub(crate) struct Rotate {
    /// The key.
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
    #[command(flatten)]
    pub(crate) from: SecretFrom,
    #[command(flatten)]
    pub(crate) keeper: ToKeeper,
}

impl SecretFrom {
    /// Whether one of them is given.
    pub(crate) fn is_given(&self) -> bool {
        self.file.is_some() || self.fd.is_some() || self.keyring.is_some()
    }
}
