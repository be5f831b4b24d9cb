//! The definition of every command and flag. Help, man pages, completions and tests are generated from it.

mod advise;
mod bench;
mod key;
mod kind;
mod rust_log;
mod tcp_ao;
mod xfrm;

pub(crate) use advise::{Advise, For, What};
pub(crate) use bench::{Bench, BenchCommand, Compare};
pub(crate) use key::{Keeper, Key, PublicKey, Rules, SecretFrom, ToKeeper};
pub(crate) use tcp_ao::{Check, Clear, Daemon, Show, Sign, TcpAo, Verify};
pub(crate) use xfrm::Xfrm;

use clap::{Args, Parser, Subcommand, ValueEnum, ValueHint};
pub(crate) use kind::KindArg;
use rust_log::{OF_THE_PROGRAM, RUST_LOG};
use sealane_abi::Profile;
use std::ffi::OsString;
use std::path::PathBuf;

/// Linux's network cryptography, in user space.
///
/// Sealane serves AF_ALG, TCP-AO and IPsec (NETLINK_XFRM) to unmodified programs, on kernels that lack these
/// interfaces, have them disabled, or implement them slowly.
#[derive(Debug, Parser)]
#[command(
    name = "sealane",
    version,
    propagate_version = true,
    arg_required_else_help = true,
    after_help = "Exit status: 0 success; 1 the answer is no (not found, a self-test failed); 2 an error (wrong arguments, \
                  an unreadable file); 141 the reader of the output has closed it. 'sealane run' and 'sealane audit' exit \
                  with the status of the program they run, and with 125 for errors of their own."
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
    Keeper(Keeper),
    #[command(subcommand)]
    Key(Box<Key>),
    #[command(hide = true)]
    Hold(Hold),
    Check(Check),
    Doctor(Doctor),
    Adopt(Adopt),
    Advise(Box<Advise>),
    Speed(Speed),
    Bench(Bench),
    Man(Man),
    Completions(Completions),
}

/// Run a program with AF_ALG served from user space.
///
/// The program, its threads and its children can use socket(AF_ALG), NETLINK_CRYPTO and /proc/crypto whether or not the
/// kernel has them. Dynamic programs are served inside their own process, static and Go programs through seccomp user
/// notification. No configuration and no daemon are needed, and no root privileges where the kernel allows it.
///
/// NETLINK_XFRM of the program is served by the 'sealane daemon' of its network namespace. Where none serves IPsec, such
/// sockets are refused (EPROTONOSUPPORT), and a message names the network namespace.
#[derive(Debug, Args)]
#[command(
    after_help = format!(
        "Examples:\n  sealane run -- kcapi-dgst -c sha256 --hex < FILE\n  sealane run --profile linux-6.1 -- python3 \
         probe.py\n  sealane run -- openssl enc -engine afalg -aes-128-cbc -pbkdf2 -in FILE -out FILE.enc\n  sealane run --keys keeper -- \
         python3 backup.py\n\n{RUST_LOG} \
         {OF_THE_PROGRAM}\n\nExit status: that of the program; 128 + n if signal n killed it; 126 if it cannot be \
         executed; 127 if it is not found; 125 if sealane itself fails."
    )
)]
pub(crate) struct Run {
    /// Serve TCP-AO (RFC 5925) as well: the socket options, and the segments on the wire.
    ///
    /// Needs CAP_NET_ADMIN and CAP_NET_RAW. A daemon whose configuration has [tcp-ao] signs and verifies the segments of
    /// every peer that has a key, or else the launcher. While it is not running, these segments are dropped.
    #[arg(long)]
    pub(crate) tcp_ao: bool,
    /// The path of segments between the kernel and the launcher.
    ///
    /// The default is the value of the environment variable SEALANE_TCP_AO_PATH, or 'auto' if it is not set.
    #[arg(long, value_enum, value_name = "PATH", requires = "tcp_ao")]
    pub(crate) tcp_ao_path: Option<TcpAoPath>,
    /// Leave NETLINK_XFRM to the kernel's own IPsec in network namespaces that no daemon serves.
    #[arg(long)]
    pub(crate) kernel_ipsec: bool,
    #[command(flatten)]
    pub(crate) launch: Launch,
}

/// Keep what outlives a daemon.
///
/// The daemon starts this with a listening socket as standard input, which is bound in FOLDER.
#[derive(Debug, Args)]
pub(crate) struct Hold {
    /// The runtime folder of the daemon.
    #[arg(value_name = "FOLDER")]
    pub(crate) folder: PathBuf,
}

/// The arguments common to `run` and `audit`.
#[derive(Debug, Args)]
pub(crate) struct Launch {
    /// The kernel to imitate: its algorithm names, restrictions and answers.
    ///
    /// open: the behaviour of Linux 7.3 without restrictions, with every algorithm of the crypto core. linux-6.1,
    /// linux-6.12, linux-7.3: the behaviour of that kernel. linux-7.3-restricted: the same with af_alg_restrict at its
    /// default.
    #[arg(long, value_name = "PROFILE", default_value_t = Profile::Open)]
    pub(crate) profile: Profile,
    /// The way in which system calls are intercepted.
    #[arg(long, value_enum, default_value_t = Intercept::Auto)]
    pub(crate) intercept: Intercept,
    /// The place where the keys are that the program gives to AF_ALG.
    ///
    /// The default is the value of the environment variable SEALANE_KEYS, or 'process' if it is not set. If there is no guarded memory,
    /// or no keeper answers, the program does not run.
    #[arg(long, value_enum, value_name = "PLACE")]
    pub(crate) keys: Option<KeyPlace>,
    /// The socket of the keeper, with '--keys keeper'. The default is the value of SEALANE_KEEPER, or /run/sealane-keeper/socket
    /// if it is not set.
    #[arg(long, value_name = "SOCKET", value_hint = ValueHint::FilePath)]
    pub(crate) keeper: Option<PathBuf>,
    /// The keys of the keeper's that programs may name: 'sealane://NAME' in place of a key. Without it no name is taken there.
    ///
    /// A service that takes keys from its clients would use what they name, so list no keys that they must not use.
    #[arg(long, value_name = "NAME,...", value_delimiter = ',')]
    pub(crate) key_names: Vec<String>,
    /// The program and its arguments.
    #[arg(last = true, required = true, value_name = "PROGRAM", value_hint = ValueHint::CommandWithArguments)]
    pub(crate) program: Vec<OsString>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum TcpAoPath {
    /// Busy connections bypass the kernel's packet queues where the kernel and the device support it.
    Auto,
    /// All segments pass through the kernel's packet queues.
    Queue,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Intercept {
    /// In the process of a dynamic program, and by seccomp user notification for all calls that bypass libc.
    Auto,
    /// In the process only (LD_PRELOAD). Static programs are not served; setuid children keep their privileges.
    Preload,
    /// By seccomp user notification only.
    Seccomp,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum KeyPlace {
    /// The process that computes: the program's own, or the launcher for programs that it serves by seccomp.
    Process,
    /// Guarded memory of that process: memfd_secret behind a protection key, not in children and core dumps, open during an
    /// operation only. What this machine lacks of it is said at the start.
    Guarded,
    /// The same. If something of it is lacking, the program does not run.
    GuardedStrict,
    /// A keeper ('sealane keeper'), which computes: nothing of a key stays in the program.
    Keeper,
}

/// Run a program and report which algorithms of AF_ALG it used.
///
/// The report lists for each algorithm the calls, bytes and errors, the driver that served it, and whether the
/// allowlist of Linux 7.3 (af_alg_restrict) admits it for privileged and unprivileged callers. It is written when the
/// program ends, to standard error or to the file named by --output.
#[derive(Debug, Args)]
#[command(after_help = format!(
    "Example:\n  sealane audit -- cryptsetup benchmark\n\n{RUST_LOG} {OF_THE_PROGRAM}"
))]
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

/// Inspect, test and measure the drivers of the crypto core.
#[derive(Debug, Subcommand)]
pub(crate) enum Crypto {
    List(CryptoList),
    Test(CryptoTest),
    Calibrate(Calibrate),
    Explain(Explain),
}

/// List all drivers in the format of /proc/crypto.
///
/// The self-test of each driver is run first, so that the 'selftest' line holds its result on this machine.
#[derive(Debug, Args)]
pub(crate) struct CryptoList {
    /// List only drivers whose algorithm name or driver name contains NAME.
    #[arg(value_name = "NAME")]
    pub(crate) name: Option<String>,
    /// List only algorithms of this type.
    #[arg(long = "type", value_enum)]
    pub(crate) kind: Option<KindArg>,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Run the self-test of every driver and report the failures.
#[derive(Debug, Args)]
pub(crate) struct CryptoTest {
    /// Test only drivers whose algorithm name or driver name contains NAME.
    #[arg(value_name = "NAME")]
    pub(crate) name: Option<String>,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Measure every driver on this machine and store the table that selects the driver for each algorithm.
#[derive(Debug, Args)]
#[command(
    after_help = "The table is a text file with one line for each algorithm, direction and driver, which holds the nanoseconds \
                  for each operation by length and burst. Sealane reads the first of $SEALANE_CALIBRATION, \
                  ~/.config/sealane/calibration and /etc/sealane/calibration that exists, or else the table that it ships \
                  for the CPU's family."
)]
pub(crate) struct Calibrate {
    /// Measure only algorithms whose name contains NAME, and keep the rest of an existing table.
    #[arg(long, value_name = "NAME")]
    pub(crate) only: Option<String>,
    /// The whole milliseconds to measure each combination of algorithm, driver, direction, length and burst.
    #[arg(long, value_name = "MS", default_value_t = 2)]
    pub(crate) cell_ms: u64,
    /// The file to write the table to; '-' is standard output. The default is the table of this user for this CPU.
    #[arg(long, short, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) output: Option<PathBuf>,
}

/// Show which driver serves an algorithm for a given length and burst, and why.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  sealane crypto explain 'hmac(sha256)' --bytes 144 --burst 64")]
pub(crate) struct Explain {
    /// The generic name of an algorithm, or the name of a driver.
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
    /// The message length in bytes.
    #[arg(long, value_name = "N", default_value_t = 1420)]
    pub(crate) bytes: usize,
    /// The number of operations in one call.
    #[arg(long, value_name = "B", default_value_t = 1)]
    pub(crate) burst: usize,
    /// Use the decrypting direction instead of the encrypting one.
    #[arg(long)]
    pub(crate) decrypt: bool,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Measure an algorithm or a driver: time per operation, operations and bytes per second, cycles per byte.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  sealane speed -c 'gcm(aes)' -b 64,1420,16384 -n 1\n  sealane speed -c 'hmac(sha1)' -b 144 -n 64 \
                  --against openssl,aws-lc,ipsec-mb,rustcrypto\n\nThe rows are measured in turns, and each figure is the median of all \
                  rounds. Compare the rows of one run with each other, not with those of another run."
)]
pub(crate) struct Speed {
    /// The algorithm or driver to measure.
    #[arg(short = 'c', long = "cipher", value_name = "NAME|DRIVER", required = true)]
    pub(crate) name: String,
    /// The message lengths in bytes, separated by commas.
    #[arg(
        short,
        long,
        value_name = "BYTES",
        value_delimiter = ',',
        default_value = "16,64,144,256,576,1420,4096,16384"
    )]
    pub(crate) bytes: Vec<usize>,
    /// The number of operations in one call.
    #[arg(short = 'n', long, value_name = "BURST", default_value_t = 1)]
    pub(crate) burst: usize,
    /// The seconds to measure each row.
    #[arg(short = 't', long, value_name = "SECONDS", default_value_t = 1.0)]
    pub(crate) seconds: f64,
    /// Measure the decrypting direction instead of the encrypting one.
    #[arg(long)]
    pub(crate) decrypt: bool,
    /// Rivals to measure beside it: openssl, aws-lc, ipsec-mb, rustcrypto, simd, kernel, driver names, or null, which
    /// shows the cost of everything except the cryptography.
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub(crate) against: Vec<String>,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Look at this machine: what it has, blocks or lacks, and which programs need Sealane.
///
/// Looks for the kernel's modules and what blocks them (modprobe.d, the kernel's command line), TCP-AO, the TUN device,
/// nftables, seccomp, AF_XDP, and the table of drivers; for programs that use AF_ALG, TCP-AO or IPsec, and their units; and
/// for settings of systemd and sysctl.d that get in the way. Each finding comes with the commands that help.
///
/// Nothing is changed, and no module is loaded by looking. Any user may look; what this user cannot see is named.
#[derive(Debug, Args)]
#[command(
    after_help = "Findings are explained in docs/doctor.md.\n\nExamples:\n  sealane doctor\n  sealane doctor --json\n\n\
                        Exit status: 0 nothing needs doing; 1 something needs doing; 2 nothing is known to need doing, but \
                        not all that matters could be seen, or nothing could be looked at."
)]
pub(crate) struct Doctor {
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Put units of systemd under Sealane: their programs run under 'sealane run' from their next start on.
///
/// Writes /etc/systemd/system/UNIT.d/sealane.conf for units that start one of the programs that 'sealane doctor' knows:
/// strongSwan (also as NetworkManager's plugin), libreswan, BIRD, iwd, bluetoothd. Units of IPsec start after the daemon.
/// Prints the commands that start the units again; nothing is started here.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  sealane adopt strongswan.service\n  sealane adopt --undo strongswan.service\n\n\
                        Exit status: 0 done; 2 a unit has no such program, or an error: then no file has changed.")]
pub(crate) struct Adopt {
    /// Remove what was written, so that the kernel serves the programs again.
    #[arg(long)]
    pub(crate) undo: bool,
    /// The units, as systemctl(1) names them.
    #[arg(value_name = "UNIT", required = true)]
    pub(crate) units: Vec<String>,
}

/// Write the man pages.
#[derive(Debug, Args)]
pub(crate) struct Man {
    /// The folder to write sealane.1, sealane-run.1, ... to.
    #[arg(value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) dir: PathBuf,
}

/// Write the completion script of a shell to standard output.
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
