//! Every command and flag, defined once: help, man pages, completions and tests grow from here.

mod tcp_ao;
mod xfrm;

pub(crate) use tcp_ao::{Check, Clear, Daemon, Show, Sign, TcpAo, Verify};
pub(crate) use xfrm::Xfrm;

use clap::{Args, Parser, Subcommand, ValueEnum, ValueHint};
use sealane_abi::Profile;
use sealane_crypto::Kind;
use std::ffi::OsString;
use std::path::PathBuf;

/// Linux's network cryptography, in user space.
///
/// Sealane serves the kernel's crypto interfaces to unmodified programs: on kernels that do not have them, have turned
/// them off, or serve them slowly.
#[derive(Debug, Parser)]
#[command(
    name = "sealane",
    version,
    propagate_version = true,
    arg_required_else_help = true,
    after_help = "Exit status: 0 done; 1 the answer is no (not found, a self-test failed); 2 the question could not be \
                  asked (bad arguments, a file that cannot be read). 'sealane run' and 'sealane audit' exit with the \
                  program's own status."
)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Run(Run),
    Audit(Audit),
    #[command(subcommand)]
    Crypto(Crypto),
    #[command(subcommand)]
    TcpAo(TcpAo),
    Xfrm(Xfrm),
    Daemon(Daemon),
    Check(Check),
    Speed(Speed),
    Man(Man),
    Completions(Completions),
}

/// Run a program with AF_ALG served from user space.
///
/// The program, its threads and its children use socket(AF_ALG), NETLINK_CRYPTO and /proc/crypto as if the kernel had
/// them. Dynamic programs are served inside their own process; static and Go programs through seccomp user notification.
/// No configuration, no daemon and, where the kernel lets it, no root.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  sealane run -- kcapi-dgst -c sha256 --hex < FILE\n  sealane run --profile linux-6.1 -- \
                  python3 probe.py\n  sealane run -- openssl enc -engine afalg -aes-128-cbc -pbkdf2 -in FILE -out FILE.enc\n\n\
                  Exit status: the program's own; 128 + n when signal n ended it; 126 it could not be executed; 127 it was \
                  not found; 125 sealane itself failed."
)]
pub(crate) struct Run {
    /// Serve TCP-AO (RFC 5925) as well: its socket options, and its segments on the wire.
    ///
    /// Needs CAP_NET_ADMIN and CAP_NET_RAW. Segments of peers that have a key are signed and verified by the launcher; as long
    /// as it is not there, they are dropped.
    #[arg(long)]
    pub(crate) tcp_ao: bool,
    /// How segments get from the kernel to the launcher and back.
    ///
    /// Without this option SEALANE_TCP_AO_PATH says it, if it is set.
    #[arg(long, value_enum, value_name = "PATH", requires = "tcp_ao")]
    pub(crate) tcp_ao_path: Option<TcpAoPath>,
    #[command(flatten)]
    pub(crate) launch: Launch,
}

/// What `run` and `audit` share.
#[derive(Debug, Args)]
pub(crate) struct Launch {
    /// The kernel to imitate: names, restrictions and answers.
    ///
    /// open: Linux 7.3's behaviour, nothing restricted, every algorithm of the core. linux-6.1, linux-6.12, linux-7.3: as
    /// that kernel answers. linux-7.3-restricted: with af_alg_restrict at its default.
    #[arg(long, value_name = "PROFILE", default_value_t = Profile::Open)]
    pub(crate) profile: Profile,
    /// How calls are intercepted.
    #[arg(long, value_enum, default_value_t = Intercept::Auto)]
    pub(crate) intercept: Intercept,
    /// The program and its arguments.
    #[arg(last = true, required = true, value_name = "PROGRAM", value_hint = ValueHint::CommandWithArguments)]
    pub(crate) program: Vec<OsString>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum TcpAoPath {
    /// Connections with many segments go past the kernel's queues, where kernel and device can do that.
    Auto,
    /// All segments go by the kernel's queues.
    Queue,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Intercept {
    /// In process where the program is dynamic, by seccomp for everything that goes around.
    Auto,
    /// In process only (LD_PRELOAD): static programs are not served, setuid children keep their privileges.
    Preload,
    /// By seccomp user notification only.
    Seccomp,
}

/// Run a program and report which algorithms of AF_ALG it used.
///
/// For each algorithm: calls, bytes, errors, the driver that served it, and whether Linux 7.3's allowlist
/// (af_alg_restrict) would admit it, privileged or not. The report follows the program's own output, on standard error
/// unless --output names a file.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  sealane audit -- cryptsetup benchmark")]
pub(crate) struct Audit {
    /// Print the report as JSON.
    #[arg(long)]
    pub(crate) json: bool,
    /// Write the report to a file instead of standard error.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) output: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) launch: Launch,
}

/// The crypto core: its algorithms, drivers, tests and measurements.
#[derive(Debug, Subcommand)]
pub(crate) enum Crypto {
    List(CryptoList),
    Test(CryptoTest),
    Calibrate(Calibrate),
    Explain(Explain),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum KindArg {
    Hash,
    NonceMac,
    Skcipher,
    Aead,
    Rng,
}

impl From<KindArg> for Kind {
    fn from(kind: KindArg) -> Kind {
        match kind {
            KindArg::Hash => Kind::Hash,
            KindArg::NonceMac => Kind::NonceMac,
            KindArg::Skcipher => Kind::Skcipher,
            KindArg::Aead => Kind::Aead,
            KindArg::Rng => Kind::Rng,
        }
    }
}

/// List every driver, in the format of /proc/crypto.
///
/// Each driver's self-test runs first, so that the 'selftest' line says what is true on this machine.
#[derive(Debug, Args)]
pub(crate) struct CryptoList {
    /// Only drivers whose name or driver name contains this.
    #[arg(value_name = "NAME")]
    pub(crate) name: Option<String>,
    /// Only this type.
    #[arg(long = "type", value_enum)]
    pub(crate) kind: Option<KindArg>,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Run the self-test of every driver and name those that fail.
#[derive(Debug, Args)]
pub(crate) struct CryptoTest {
    /// Only drivers whose name or driver name contains this.
    #[arg(value_name = "NAME")]
    pub(crate) name: Option<String>,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Measure every driver on this machine and keep the table by which names are resolved.
#[derive(Debug, Args)]
#[command(
    after_help = "The table is text: one line for each algorithm, direction and driver, nanoseconds an operation by \
                  length and burst. It is looked for in $SEALANE_CALIBRATION, ~/.config/sealane/calibration, \
                  /etc/sealane/calibration, and else a table shipped for the CPU's family serves."
)]
pub(crate) struct Calibrate {
    /// Only algorithms whose name contains this; the rest of an existing table is kept.
    #[arg(long, value_name = "NAME")]
    pub(crate) only: Option<String>,
    /// Milliseconds to spend on each cell (algorithm, driver, direction, length, burst).
    #[arg(long, value_name = "MS", default_value_t = 2)]
    pub(crate) cell_ms: u64,
    /// Where to write the table; '-' for standard output. Default: this user's table for this CPU.
    #[arg(long, short, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) output: Option<PathBuf>,
}

/// Say which driver serves an algorithm for a length and a burst, and why.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  sealane crypto explain 'hmac(sha256)' --bytes 144 --burst 64")]
pub(crate) struct Explain {
    /// Generic name or driver name.
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
    /// Message length in bytes.
    #[arg(long, value_name = "N", default_value_t = 1420)]
    pub(crate) bytes: usize,
    /// Operations in one call.
    #[arg(long, value_name = "B", default_value_t = 1)]
    pub(crate) burst: usize,
    /// Decrypt or open instead of encrypt, seal, hash or sign.
    #[arg(long)]
    pub(crate) decrypt: bool,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Measure an algorithm or a driver: time an operation, operations and bytes a second, cycles a byte.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  sealane speed -c 'gcm(aes)' -b 64,1420,16384 -n 1\n  sealane speed -c 'hmac(sha1)' -b 144 -n 64 \
                  --against openssl,aws-lc,ipsec-mb,rustcrypto\n\nRows are measured in turns, round by round, and each figure is the \
                  median of the rounds: compare rows of one run, not runs."
)]
pub(crate) struct Speed {
    /// Algorithm or driver.
    #[arg(short = 'c', long = "cipher", value_name = "NAME|DRIVER", required = true)]
    pub(crate) name: String,
    /// Message lengths in bytes, separated by commas.
    #[arg(
        short,
        long,
        value_name = "BYTES",
        value_delimiter = ',',
        default_value = "16,64,144,256,576,1420,4096,16384"
    )]
    pub(crate) bytes: Vec<usize>,
    /// Operations in one call.
    #[arg(short = 'n', long, value_name = "BURST", default_value_t = 1)]
    pub(crate) burst: usize,
    /// Seconds for each row.
    #[arg(short = 't', long, value_name = "SECONDS", default_value_t = 1.0)]
    pub(crate) seconds: f64,
    /// Decrypt or open instead of encrypt, seal, hash or sign.
    #[arg(long)]
    pub(crate) decrypt: bool,
    /// Measure these beside it: openssl, aws-lc, ipsec-mb, rustcrypto, simd, kernel, null (what everything but
    /// the crypto costs), or driver names.
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub(crate) against: Vec<String>,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Write the man pages.
#[derive(Debug, Args)]
pub(crate) struct Man {
    /// Folder to write sealane.1, sealane-run.1, ... into.
    #[arg(value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) dir: PathBuf,
}

/// Write the completions of a shell to standard output.
#[derive(Debug, Args)]
pub(crate) struct Completions {
    /// The shell.
    #[arg(value_enum)]
    pub(crate) shell: clap_complete::Shell,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn definitions_are_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_command_and_flag_explains_itself() {
        fn check(command: &clap::Command) {
            assert!(command.get_about().is_some(), "{} has no help", command.get_name());
            for arg in command.get_arguments() {
                assert!(arg.get_help().is_some(), "{} {} has no help", command.get_name(), arg.get_id());
            }
            command.get_subcommands().for_each(check);
        }
        let mut cli = Cli::command();
        cli.build();
        for command in cli.get_subcommands().filter(|c| c.get_name() != "help") {
            check(command);
        }
    }
}
