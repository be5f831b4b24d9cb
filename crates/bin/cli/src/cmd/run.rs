//! `sealane run`: runs a program under the launcher.

use crate::answer::Answer;
use crate::args::{Intercept, KeyPlace, Launch, Run, TcpAoPath};
use anyhow::{Context, Result};
use sealane_abi::admin::DataPath;
use sealane_abi::sealane::{self, KEYS_VARIABLE, MAX_KEY_NAMES_LEN};
use sealane_keeper_client::client;
use sealane_keeper_client::key::Name;
use sealane_launch::keys::Keys;
use sealane_launch::run::{self, Options};

pub(crate) fn run(args: &Run) -> Result<Answer> {
    let options = Options {
        tcp_ao: args.tcp_ao,
        data_path: data_path(args.tcp_ao_path)?,
        kernel_ipsec: args.kernel_ipsec,
        ..options(&args.launch)?
    };
    anyhow::ensure!(
        !(options.tcp_ao && options.intercept == run::Intercept::Preload),
        "--tcp-ao does not work with --intercept preload: the socket options of TCP-AO are intercepted by seccomp only"
    );
    Ok(status(run::run(&options)))
}

/// The data path of TCP-AO from the option, or else from the environment.
fn data_path(asked: Option<TcpAoPath>) -> Result<DataPath> {
    let named = match asked {
        Some(TcpAoPath::Auto) => return Ok(DataPath::Auto),
        Some(TcpAoPath::Queue) => return Ok(DataPath::Queue),
        None => std::env::var("SEALANE_TCP_AO_PATH").unwrap_or_default(),
    };
    match named.as_str() {
        "" => Ok(DataPath::default()),
        name => DataPath::named(name).with_context(|| format!("SEALANE_TCP_AO_PATH={name}: must be 'auto' or 'queue'")),
    }
}

/// The place of the program's keys from the options, or else from the environment.
fn keys(launch: &Launch) -> Result<Keys> {
    let place = match launch.keys {
        Some(place) => place,
        None => {
            let text = std::env::var_os(KEYS_VARIABLE).unwrap_or_default();
            match sealane::KeyPlace::named(&text.to_string_lossy()) {
                Some(sealane::KeyPlace::Process) => KeyPlace::Process,
                Some(sealane::KeyPlace::Guarded) => KeyPlace::Guarded,
                Some(sealane::KeyPlace::GuardedStrict) => KeyPlace::GuardedStrict,
                Some(sealane::KeyPlace::Keeper) => KeyPlace::Keeper,
                // A program may have lost its environment before it starts us.
                None if text.is_empty() => match Keys::around_us().context("the place of keys")? {
                    Some(keys) if launch.keeper.is_none() => return Ok(keys),
                    _ => KeyPlace::Process,
                },
                None => {
                    let names = sealane::KeyPlace::ALL.map(sealane::KeyPlace::name).join(", ");
                    anyhow::bail!("{KEYS_VARIABLE}={}: must be one of {names}", text.display())
                }
            }
        }
    };
    match (place, &launch.keeper) {
        (KeyPlace::Process | KeyPlace::Guarded | KeyPlace::GuardedStrict, Some(_)) => {
            anyhow::bail!("--keeper needs --keys keeper")
        }
        (KeyPlace::Process, None) => Ok(Keys::Process),
        (KeyPlace::Guarded, None) => Ok(Keys::Guarded { is_strict: false }),
        (KeyPlace::GuardedStrict, None) => Ok(Keys::Guarded { is_strict: true }),
        (KeyPlace::Keeper, path) => {
            let path = path.clone().unwrap_or_else(client::default_socket);
            anyhow::ensure!(!path.as_os_str().is_empty(), "--keeper: the path of a socket is missing");
            // The program may have another working folder.
            let path = std::path::absolute(&path).with_context(|| format!("--keeper {}", path.display()))?;
            Ok(Keys::Keeper(path))
        }
    }
}

/// The names of keys from the options.
fn key_names(launch: &Launch, keys: &Keys) -> Result<Vec<String>> {
    let names = &launch.key_names;
    anyhow::ensure!(names.is_empty() || matches!(keys, Keys::Keeper(_)), "--key-names needs --keys keeper");
    for name in names {
        anyhow::ensure!(Name::new(name).is_some(), "--key-names: '{}' is no name of a key", name.escape_default());
    }
    let len = names.join(",").len();
    anyhow::ensure!(len <= MAX_KEY_NAMES_LEN, "--key-names: {len} bytes are more than {MAX_KEY_NAMES_LEN}");
    Ok(names.clone())
}

/// The options of the launcher that `run` and `audit` have in common.
pub(crate) fn options(launch: &Launch) -> Result<Options> {
    let (program, args) = launch.program.split_first().context("the program to run is missing")?;
    let keys = keys(launch)?;
    Ok(Options {
        program: program.clone(),
        args: args.to_vec(),
        profile: launch.profile,
        intercept: match launch.intercept {
            Intercept::Auto => run::Intercept::Auto,
            Intercept::Preload => run::Intercept::Preload,
            Intercept::Seccomp => run::Intercept::Seccomp,
        },
        key_names: key_names(launch, &keys)?,
        keys,
        ..Options::default()
    })
}

/// The answer that passes on the exit status of a program.
pub(crate) fn status(status: i32) -> Answer {
    Answer::Status(u8::try_from(status & 0xff).expect("eight bits"))
}
