//! A keeper with many clients and many keys: how long it takes to make the keys and to start with them, what memory they take, and how
//! requests of all clients are served, once a second each and as fast as it can.
//!
//! Each client is a thread with a connection of its own. As root they are four users; a keeper gives a user 256 connections. Keys are
//! on disk under a passphrase. A request is a MAC of 64 bytes by one of the keys.

use sealane_bench::keeper::Keeper;
use sealane_bench::report::{Csv, option, seconds};
use sealane_keeper_client::client::Client;
use sealane_keeper_client::key::{Kind, Limits, Listed, Name, Spec, Uses};
use sealane_keeper_client::message::{Answer, Operation};
use std::error::Error;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use zeroize::Zeroizing;

const TEXT: [u8; 64] = [5; 64];
/// The users of the clients, where this is root.
const USERS: [u32; 4] = [61_001, 61_002, 61_003, 61_004];
const STACK: usize = 256 << 10;
/// The pause of clients that ask once a second.
const PAUSE: Duration = Duration::from_secs(1);

fn number(name: &str, default: usize) -> usize {
    option(name).and_then(|text| text.parse().ok()).unwrap_or(default)
}

fn key(number: usize) -> Result<Name, &'static str> {
    Name::new(&format!("key-{number}")).ok_or("a name")
}

/// Gives this thread alone another user, for good.
fn become_user(user: u32) {
    // SAFETY: a plain call. The C library's own would change all threads.
    let done = unsafe { libc::syscall(libc::SYS_setresuid, user, user, user) };
    assert_eq!(done, 0, "root can");
}

/// The requests of one client: the times of those that were served, and the number of the others.
#[derive(Default)]
struct Seen {
    times: Vec<Duration>,
    failures: usize,
}

/// The requests of a client until they are to stop.
fn ask(client: &mut Client, at: usize, keys: usize, stop: &AtomicBool, pause: Duration) -> Result<Seen, &'static str> {
    let (mut seen, mut next) = (Seen::default(), at);
    // Not all in the same moment.
    std::thread::sleep(pause.mul_f64(at as f64 / 1000.0 % 1.0));
    while !stop.load(Ordering::Relaxed) {
        // Far apart, so that no two clients have the same order.
        next = (next * 7919 + 1 + at) % keys;
        let operation = Operation::Mac { name: key(next)?, text: Zeroizing::new(TEXT.to_vec()) };
        let since = Instant::now();
        match client.ask(operation) {
            Ok(Answer::Tag { .. }) => seen.times.push(since.elapsed()),
            _ => seen.failures += 1,
        }
        std::thread::sleep(pause);
    }
    Ok(seen)
}

/// All clients ask for a time, and connect before. Returns what each has seen, how long they asked, and the keeper's CPU time.
fn run(
    keeper: &Keeper,
    clients: usize,
    keys: usize,
    is_root: bool,
    time: Duration,
    pause: Duration,
) -> Result<(Vec<Seen>, Duration, Duration), Box<dyn Error>> {
    let (connected, stop, socket) = (Barrier::new(clients + 1), AtomicBool::new(false), keeper.socket());
    let one = |at: usize| {
        if is_root {
            become_user(USERS[at % USERS.len()]);
        }
        let client = Client::connect(Path::new(&socket));
        connected.wait();
        let mut client = client.map_err(|_| "a client that cannot connect")?;
        ask(&mut client, at, keys, &stop, pause)
    };
    std::thread::scope(|scope| {
        let one = &one;
        let spawn = |at| std::thread::Builder::new().stack_size(STACK).spawn_scoped(scope, move || one(at));
        let threads: Vec<_> = (0..clients).map(spawn).collect::<Result<_, _>>()?;
        connected.wait();
        let (since, cpu) = (Instant::now(), keeper.cpu_time());
        std::thread::sleep(time);
        stop.store(true, Ordering::Relaxed);
        let (took, cpu) = (since.elapsed(), keeper.cpu_time() - cpu);
        let seen = threads.into_iter().map(|thread| thread.join().map_err(|_| "a client panicked")?);
        Ok((seen.collect::<Result<_, _>>()?, took, cpu))
    })
}

fn main() -> Result<(), Box<dyn Error>> {
    let (clients, keys) = (number("clients", 1000), number("keys", 10_000));
    // SAFETY: a plain call.
    let is_root = unsafe { libc::geteuid() } == 0;
    let per_user = if is_root { 256 } else { 1024 };
    let passphrase = std::env::temp_dir().join(format!("sealane-bench-passphrase-{}", std::process::id()));
    std::fs::write(&passphrase, "a passphrase of a bench\n")?;
    std::fs::set_permissions(&passphrase, std::fs::Permissions::from_mode(0o600))?;
    let started = Keeper::start(&format!(
        "store = 'FOLDER/keys'\npassphrase-file = '{}'\nclients-per-user = {per_user}\n",
        passphrase.display()
    ));
    let mut csv = Csv::new("what,value,unit");
    let mut tell = |what: &str, value: f64, unit: &str| {
        println!("{what:<58} {value:>10.2} {unit}");
        csv.line(&format!("{what},{value:.4},{unit}"));
    };
    let measured = started.and_then(|mut keeper| {
        let mebi = |bytes: u64| bytes as f64 / f64::from(1 << 20);
        tell("memory of the keeper without keys", mebi(keeper.memory()?), "MiB");
        let mut admin = Client::connect(&keeper.socket())?;
        let users: Vec<u32> = if is_root { USERS.to_vec() } else { vec![sealane_keeper_client::client::this_user()] };
        let since = Instant::now();
        for number in 0..keys {
            let spec = Spec {
                kind: Kind::Hash,
                algorithm: "hmac(sha256)".to_owned(),
                uses: Uses::MAC,
                expires_s: 0,
                limits: Limits::default(),
                users: Listed { users: users.clone(), groups: Vec::new() },
                admins: Listed::default(),
            };
            admin.ask(Operation::Generate { name: key(number)?, spec, secret_len: 32 })?;
        }
        tell("keys made, synced to disk", keys as f64 / since.elapsed().as_secs_f64(), "keys/s");
        tell("memory with these keys", mebi(keeper.memory()?), "MiB");
        drop(admin);
        tell("until a keeper with these keys serves again", keeper.restart()?.as_secs_f64(), "s");
        for (name, pause) in [("once a second", PAUSE), ("as fast as they can", Duration::ZERO)] {
            let (seen, took, cpu) = run(&keeper, clients, keys, is_root, seconds(5.0), pause)?;
            let mut all: Vec<Duration> = seen.iter().flat_map(|one| one.times.iter().copied()).collect();
            let mut counts: Vec<usize> = seen.iter().map(|one| one.times.len()).collect();
            all.sort_unstable();
            counts.sort_unstable();
            let took = took.as_secs_f64();
            let at =
                |part: f64| all.get((all.len() as f64 * part) as usize).map_or(f64::NAN, Duration::as_secs_f64) * 1e3;
            let failures: usize = seen.iter().map(|one| one.failures).sum();
            tell(&format!("{name}: requests"), all.len() as f64 / took, "1/s");
            tell(&format!("{name}: failed"), failures as f64, "requests");
            tell(&format!("{name}: median"), at(0.5), "ms");
            tell(&format!("{name}: 99th percentile"), at(0.99), "ms");
            tell(&format!("{name}: longest"), at(1.0 - f64::EPSILON), "ms");
            tell(&format!("{name}: requests of the client with fewest"), counts[0] as f64, "requests");
            tell(&format!("{name}: requests of the client with most"), counts[counts.len() - 1] as f64, "requests");
            tell(&format!("{name}: CPU of the keeper"), cpu.as_secs_f64() / took * 100.0, "% of a core");
            tell(&format!("{name}: memory of the keeper"), mebi(keeper.memory()?), "MiB");
        }
        Ok(())
    });
    std::fs::remove_file(&passphrase)?;
    measured?;
    Ok(csv.write()?)
}
