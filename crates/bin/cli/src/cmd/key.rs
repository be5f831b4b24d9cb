//! `sealane keeper` and `sealane key ...`: keys in a process of their own.

use crate::answer::Answer;
use crate::args::{Keeper, Key, KindArg, PublicKey, Rules, SecretFrom, ToKeeper};
use anyhow::{Context, Result, anyhow, bail};
use sealane_keeper_client::client::{self, Client, ClientError};
use sealane_keeper_client::key::{Kind, Limits, Listed, MAX_SECRET_LEN, MAX_SYMMETRIC_LEN, Name, Spec, Uses};
use sealane_keeper_client::message::{self, Code, Info, Operation, VersionInfo};
use sealane_pkey::{Algorithm, pem};
use serde_json::{Value, json};
use std::io::Write;
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};
use zeroize::Zeroizing;

pub(crate) fn keeper(args: &Keeper) -> Result<Answer> {
    sealane_keeper::run::run(&args.config)?;
    Ok(Answer::Yes)
}

pub(crate) fn key(args: &Key, out: &mut impl Write) -> Result<Answer> {
    match args {
        Key::Generate(args) => {
            let (name, spec) = (name(&args.rules.name)?, spec(&args.rules, Some(&args.algorithm))?);
            changed(&args.keeper, Operation::Generate { name, spec, secret_len: args.length }, out)
        }
        Key::Import(args) => {
            let (name, spec) = (name(&args.rules.name)?, spec(&args.rules, args.algorithm.as_deref())?);
            let (secret, place) =
                secret(&args.from, spec.kind)?.context("one of --file, --fd and --keyring says where the secret is")?;
            changed(&args.keeper, Operation::Import { name, spec, secret }, out).map_err(|e| naming(place, e))
        }
        Key::List(args) => list(&args.keeper, out),
        Key::Show(args) => match ask(&mut connect(&args.keeper)?, Operation::Show { name: name(&args.name)? })? {
            Some(message::Answer::Keys(keys, _)) => {
                print(&keys, args.keeper.json, out)?;
                Ok(Answer::Yes)
            }
            None => Ok(Answer::No),
            Some(_) => bail!("the keeper answers another question"),
        },
        Key::Public(args) => public(args, out),
        Key::Revoke(args) => {
            let name = name(&args.name)?;
            changed(&args.keeper, Operation::Revoke { name, version: args.only.unwrap_or(0) }, out)
        }
        Key::Rotate(args) => {
            let name = name(&args.name)?;
            let kind = if args.from.is_given() { kind_of(&args.keeper, &name)? } else { Some(Kind::Aead) };
            let Some(kind) = kind else { return Ok(Answer::No) };
            let secret = secret(&args.from, kind)?;
            match secret {
                Some((secret, place)) if secret.is_empty() => bail!("{place}: the secret is empty"),
                Some((secret, place)) => {
                    changed(&args.keeper, Operation::Rotate { name, secret }, out).map_err(|e| naming(place, e))
                }
                None => changed(&args.keeper, Operation::Rotate { name, secret: Zeroizing::new(Vec::new()) }, out),
            }
        }
    }
}

fn connect(args: &ToKeeper) -> Result<Client> {
    let path = args.socket.clone().unwrap_or_else(client::default_socket);
    Ok(Client::connect(&path)?)
}

/// Asks the keeper. `None`, with a message, if there is no such key.
fn ask(client: &mut Client, operation: Operation) -> Result<Option<message::Answer>> {
    match client.ask(operation) {
        Ok(answer) => Ok(Some(answer)),
        Err(ClientError::Refused(refusal)) if refusal.code == Code::NoKey => {
            eprintln!("sealane: {refusal}");
            Ok(None)
        }
        Err(e) => Err(e.into()),
    }
}

/// An error with the place of a secret before it, if the keeper does not take that: it does not know the place.
fn naming(place: String, error: anyhow::Error) -> anyhow::Error {
    match error.downcast_ref() {
        Some(ClientError::Refused(refusal)) if refusal.code == Code::Parameter => error.context(place),
        _ => error,
    }
}

/// Asks for a change, which is answered by a version.
fn changed(args: &ToKeeper, operation: Operation, out: &mut impl Write) -> Result<Answer> {
    let name = operation.key().map(Name::to_string).unwrap_or_default();
    let done = operation.name();
    match ask(&mut connect(args)?, operation)? {
        Some(message::Answer::Version(version)) => {
            if args.json {
                writeln!(out, "{}", json!({ "name": name, "operation": done, "version": version }))?;
            } else if version != 0 {
                writeln!(out, "{name}: version {version}")?;
            } else {
                writeln!(out, "{name}: all versions")?;
            }
            Ok(Answer::Yes)
        }
        None => Ok(Answer::No),
        Some(_) => bail!("the keeper answers another question"),
    }
}

fn list(args: &ToKeeper, out: &mut impl Write) -> Result<Answer> {
    let mut client = connect(args)?;
    let (mut all, mut after): (Vec<Info>, Option<Name>) = (Vec::new(), None);
    loop {
        let Some(message::Answer::Keys(keys, more)) = ask(&mut client, Operation::List { after: after.take() })? else {
            bail!("the keeper answers another question");
        };
        after = keys.last().map(|key| key.name.clone());
        all.extend(keys);
        if !more || after.is_none() {
            break;
        }
    }
    print(&all, args.json, out)?;
    Ok(if all.is_empty() { Answer::No } else { Answer::Yes })
}

fn name(text: &str) -> Result<Name> {
    Name::new(text).with_context(|| {
        format!("'{text}' is no name of a key: up to 64 letters, digits, '.', '_' and '-', a letter or a digit first")
    })
}

/// The type of a key; `None`, with a message, if there is no such key.
fn kind_of(args: &ToKeeper, name: &Name) -> Result<Option<Kind>> {
    match ask(&mut connect(args)?, Operation::Show { name: name.clone() })? {
        Some(message::Answer::Keys(keys, _)) if keys.len() == 1 => Ok(Some(keys[0].spec.kind)),
        None => Ok(None),
        Some(_) => bail!("the keeper answers another question"),
    }
}

fn public(args: &PublicKey, out: &mut impl Write) -> Result<Answer> {
    let operation = Operation::Public { name: name(&args.name)?, version: args.only.unwrap_or(0) };
    let (version, algorithm, spki) = match ask(&mut connect(&args.keeper)?, operation)? {
        Some(message::Answer::Public { version, algorithm, spki }) => (version, algorithm, spki),
        None => return Ok(Answer::No),
        Some(_) => bail!("the keeper answers another question"),
    };
    if args.der {
        out.write_all(&spki)?;
    } else if args.keeper.json {
        let text = pem::public_key(&spki);
        let value = json!({ "name": args.name, "version": version, "algorithm": algorithm.name(), "public_key": text });
        writeln!(out, "{value}")?;
    } else {
        write!(out, "{}", pem::public_key(&spki))?;
    }
    Ok(Answer::Yes)
}

/// The secret, if the arguments say where one is, and that place. A private key comes in DER of some format.
fn secret(from: &SecretFrom, kind: Kind) -> Result<Option<(Zeroizing<Vec<u8>>, String)>> {
    let private = kind == Kind::Private;
    let file = from.file.clone().or_else(|| from.fd.map(|fd| PathBuf::from(format!("/dev/fd/{fd}"))));
    let most = if private { pem::MAX_PEM_LEN } else { MAX_SYMMETRIC_LEN };
    let (secret, place) = match (file, from.keyring) {
        (Some(file), _) => {
            let place = file.display().to_string();
            (client::secret_of_file(&file, most).with_context(|| place.clone())?, place)
        }
        (None, Some(serial)) => {
            let place = format!("key {serial} of the kernel's keyrings");
            (client::secret_of_keyring(serial, most).with_context(|| place.clone())?, place)
        }
        (None, None) => return Ok(None),
    };
    if !private {
        return Ok(Some((secret, place)));
    }
    let der = pem::private_key(&secret).with_context(|| place.clone())?.unwrap_or(secret);
    if der.len() > MAX_SECRET_LEN {
        bail!("{place}: a private key has at most {MAX_SECRET_LEN} bytes");
    }
    Ok(Some((der, place)))
}

/// The rules of a key. Without an algorithm it is a private key, which the keeper finds out about.
fn spec(rules: &Rules, algorithm: Option<&str>) -> Result<Spec> {
    let named = algorithm.unwrap_or_default();
    let kind = match rules.kind {
        _ if algorithm.is_none() || Algorithm::of_name(named).is_some() => {
            if rules.kind.is_some() {
                bail!("--type: private keys have none");
            }
            Kind::Private
        }
        Some(KindArg::Hash) => Kind::Hash,
        Some(KindArg::Skcipher) => Kind::Skcipher,
        Some(KindArg::Aead) => Kind::Aead,
        Some(KindArg::NonceMac | KindArg::Rng) => bail!("--type: keys of the keeper are of hash, skcipher or aead"),
        None => {
            use sealane_crypto::Kind as Symmetric;
            let registry = super::registry()?;
            let found =
                [(Symmetric::Aead, Kind::Aead), (Symmetric::Skcipher, Kind::Skcipher), (Symmetric::Hash, Kind::Hash)]
                    .into_iter()
                    .find(|(kind, _)| registry.lookup(*kind, named).is_ok());
            found.map(|(_, kind)| kind).with_context(|| {
                let private = Algorithm::ALL.map(|(_, name)| name).join(", ");
                format!("there is no algorithm '{named}' for keys: private keys have {private}")
            })?
        }
    };
    let uses = match &rules.uses {
        Some(text) => Uses::parse(text).map_err(|word| anyhow!("--uses: '{word}' is no use of a key"))?,
        // The keeper knows what the algorithm of a private key can.
        None if kind == Kind::Private => Uses::default(),
        None => {
            let all =
                Uses::ALL.iter().filter(|(one, _)| *one != Uses::CALLER_NONCE && Uses::possible(kind).contains(*one));
            all.fold(Uses::default(), |uses, (one, _)| uses.and(*one))
        }
    };
    let users =
        if rules.users.is_empty() && rules.groups.is_empty() { vec![client::this_user()] } else { rules.users.clone() };
    Ok(Spec {
        kind,
        algorithm: named.to_owned(),
        uses,
        expires_s: rules.expires_in.as_deref().map(expiry).transpose()?.unwrap_or(0),
        limits: Limits { bytes: rules.limit_bytes, operations: rules.limit_operations, per_second: rules.limit_rate },
        users: Listed { users, groups: rules.groups.clone() },
        admins: Listed { users: rules.admin_users.clone(), groups: rules.admin_groups.clone() },
    })
}

fn now_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

fn expiry(text: &str) -> Result<u64> {
    let after =
        duration_s(text).with_context(|| format!("--expires-in '{text}': expected a number and s, m, h or d"))?;
    Ok(now_s().saturating_add(after))
}

fn duration_s(text: &str) -> Option<u64> {
    let (digits, unit_s) = [("s", 1), ("m", 60), ("h", 3600), ("d", 86_400)]
        .into_iter()
        .find_map(|(unit, seconds)| text.strip_suffix(unit).map(|digits| (digits, seconds)))?;
    digits.parse::<u64>().ok().filter(|number| *number > 0)?.checked_mul(unit_s)
}

fn print(keys: &[Info], as_json: bool, out: &mut impl Write) -> Result<()> {
    if as_json {
        serde_json::to_writer_pretty(&mut *out, &keys.iter().map(as_value).collect::<Vec<_>>())?;
        writeln!(out)?;
        return Ok(());
    }
    for key in keys {
        let spec = &key.spec;
        writeln!(out, "{}: {} {}, for: {}", key.name, spec.kind.name(), spec.algorithm, uses(spec).join(", "))?;
        for (what, listed) in [("users", &spec.users), ("administrators", &spec.admins)] {
            if *listed != Listed::default() {
                writeln!(out, "    {what}: {:?}, groups {:?}", listed.users, listed.groups)?;
            }
        }
        let limits = spec.limits;
        for (what, limit) in [
            ("bytes", limits.bytes),
            ("operations", limits.operations),
            ("operations a second", limits.per_second.into()),
        ] {
            if limit != 0 {
                writeln!(out, "    limit: {limit} {what}")?;
            }
        }
        if spec.expires_s != 0 {
            let passed = if spec.expires_s <= now_s() { "expired" } else { "expires" };
            writeln!(out, "    {passed}: {} s since 1970", spec.expires_s)?;
        }
        for version in &key.versions {
            let state = if version.revoked_s == 0 { "" } else { ", revoked" };
            let (number, bytes, operations) = (version.number, version.bytes, version.operations);
            writeln!(out, "    version {number}: {bytes} bytes, {operations} operations{state}")?;
        }
    }
    Ok(())
}

fn uses(spec: &Spec) -> Vec<&'static str> {
    spec.uses.names().collect()
}

fn as_value(key: &Info) -> Value {
    let spec = &key.spec;
    json!({
        "name": key.name.as_str(),
        "type": spec.kind.name(),
        "algorithm": spec.algorithm,
        "uses": uses(spec),
        "expires_s": spec.expires_s,
        "limits": {
            "bytes": spec.limits.bytes,
            "operations": spec.limits.operations,
            "per_second": spec.limits.per_second,
        },
        "users": spec.users.users,
        "groups": spec.users.groups,
        "admin_users": spec.admins.users,
        "admin_groups": spec.admins.groups,
        "versions": key.versions.iter().map(version_as_value).collect::<Vec<_>>(),
    })
}

fn version_as_value(version: &VersionInfo) -> Value {
    json!({
        "number": version.number,
        "made_s": version.made_s,
        "revoked_s": version.revoked_s,
        "bytes": version.bytes,
        "operations": version.operations,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_a_unit() {
        assert_eq!(["1s", "2m", "3h", "4d"].map(duration_s), [Some(1), Some(120), Some(10_800), Some(345_600)]);
        for wrong in ["", "1", "d", "0d", "-1d", "1.5h", "18446744073709551615d"] {
            assert_eq!(duration_s(wrong), None, "{wrong}");
        }
    }
}
