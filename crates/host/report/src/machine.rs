//! The facts about the machine that a reader needs to judge figures.

use crate::data::Machine;
use sealane_drivers::tables::{self, Origin};
use sealane_drivers::turns::ticks;
use std::hint::black_box;
use std::path::Path;
use std::time::{Duration, Instant};

/// The flags of x86 CPUs that drivers look at.
const FLAGS: [&str; 11] =
    ["aes", "avx2", "avx512bw", "avx512f", "avx512vl", "gfni", "pclmulqdq", "sha_ni", "vaes", "vpclmulqdq", "pku"];
const UNKNOWN: &str = "unknown";

/// Looks at this machine. `origin` is that of the table by which drivers are chosen. Takes a quarter of a second, because it measures how
/// steady the CPU is.
#[must_use]
pub fn machine(origin: &Origin) -> Machine {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let cpuinfo = read("/proc/cpuinfo");
    let has = has(&cpuinfo);
    let mut frequency = governors(Path::new("/sys/devices/system/cpu"));
    frequency.push(counter(&has, ticks_per_second()));
    if has("hypervisor") {
        frequency.push(
            "a hypervisor runs this machine: others may share the CPU, and its frequency is not shown".to_owned(),
        );
    }
    frequency.push(steadiness(&fixed_loops(Duration::from_millis(200))));
    let release = read("/proc/sys/kernel/osrelease");
    Machine {
        cpu: tables::cpu_model(),
        cpus: std::thread::available_parallelism().map_or(1, usize::from),
        flags: FLAGS.into_iter().filter(|flag| has(flag)).map(str::to_owned).collect(),
        frequency,
        kernel: Some(release.trim()).filter(|release| !release.is_empty()).unwrap_or(UNKNOWN).to_owned(),
        versions: versions(),
        table: table(origin),
    }
}

/// Name and version of what is measured.
fn versions() -> Vec<(String, String)> {
    let openssl = sealane_crypto_openssl::version().unwrap_or_else(|why| format!("none: {why}"));
    let own = [("Sealane", env!("CARGO_PKG_VERSION")), ("rustc", env!("SEALANE_RUSTC")), ("OpenSSL", &openssl)];
    // Programs and libraries say their names, too.
    let named =
        |(name, said): (&str, &str)| (name.to_owned(), said.strip_prefix(name).unwrap_or(said).trim().to_owned());
    own.into_iter().map(named).chain(sealane_drivers::versions()).collect()
}

fn table(origin: &Origin) -> String {
    match origin {
        Origin::File(path) => format!("measured: {}", path.display()),
        Origin::Shipped(name) => format!("shipped: {name}"),
        Origin::Nothing => "none: priorities decide".to_owned(),
    }
}

/// Tells whether the text of `/proc/cpuinfo` has a flag.
fn has(cpuinfo: &str) -> impl Fn(&str) -> bool {
    let line = cpuinfo.lines().find_map(|line| line.split_once(':').filter(|(name, _)| name.trim() == "flags"));
    let flags: Vec<&str> = line.map_or("", |(_, flags)| flags).split_whitespace().collect();
    move |flag| flags.contains(&flag)
}

/// A sentence for each cpufreq policy under `folder`, or the one that says that there is none.
fn governors(folder: &Path) -> Vec<String> {
    let policies = std::fs::read_dir(folder.join("cpufreq")).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut told: Vec<String> = policies.filter_map(|policy| governor(&policy)).collect();
    told.sort_unstable();
    // Most machines have one policy for each CPU, and all of them are the same.
    told.dedup();
    if told.is_empty() {
        told.push("the kernel shows no frequency governor (cpufreq)".to_owned());
    }
    told
}

fn governor(policy: &Path) -> Option<String> {
    let read = |name: &str| std::fs::read_to_string(policy.join(name)).ok().map(|text| text.trim().to_owned());
    let mhz = |name: &str| read(name).and_then(|khz| khz.parse::<u64>().ok()).map(|khz| format!("{} MHz", khz / 1000));
    let or_unknown = |value: Option<String>| value.unwrap_or_else(|| UNKNOWN.to_owned());
    Some(format!(
        "governor {} ({}), from {} to {}",
        read("scaling_governor")?,
        or_unknown(read("scaling_driver")),
        or_unknown(mhz("scaling_min_freq")),
        or_unknown(mhz("scaling_max_freq"))
    ))
}

/// The meaning of a tick of the time-stamp counter.
fn counter(has: &impl Fn(&str) -> bool, per_second: Option<f64>) -> String {
    let Some(rate) = per_second else { return "no time-stamp counter: cycles are not shown".to_owned() };
    let kind = match (has("constant_tsc"), has("nonstop_tsc")) {
        (true, true) => "at a constant rate, whatever the CPU's frequency is",
        (true, false) => "at a constant rate, but not while the CPU sleeps",
        (false, _) => "possibly with the CPU's frequency",
    };
    format!("the time-stamp counter counts {:.2} GHz, {kind}: cycles in this report are its ticks", rate / 1e9)
}

/// The rate of the time-stamp counter against the clock; none where there is no counter.
fn ticks_per_second() -> Option<f64> {
    let (start, before) = (Instant::now(), ticks());
    while start.elapsed() < Duration::from_millis(20) {
        std::hint::spin_loop();
    }
    let (after, took) = (ticks(), start.elapsed());
    (after > before).then(|| (after - before) as f64 / took.as_secs_f64())
}

/// Seconds that each of many equal pieces of work took, for as long as `during` in all.
fn fixed_loops(during: Duration) -> Vec<f64> {
    /// A chain of multiplications, which no CPU does in less than a few cycles each: about half a millisecond.
    const STEPS: u64 = 400_000;
    let start = Instant::now();
    let mut took = Vec::new();
    let mut x = 1u64;
    while start.elapsed() < during || took.len() < 3 {
        let began = Instant::now();
        for _ in 0..STEPS {
            x = black_box(x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1));
        }
        took.push(began.elapsed().as_secs_f64());
    }
    took
}

/// The difference in time between equal pieces of work.
fn steadiness(took: &[f64]) -> String {
    let mut took = took.to_vec();
    took.sort_by(f64::total_cmp);
    let [fastest, .., slowest] = took[..] else { return "the CPU's steadiness was not measured".to_owned() };
    let over = |seconds: f64| (seconds / fastest - 1.0) * 100.0;
    let middle = took[took.len() / 2];
    let nine_in_ten = took[took.len() * 9 / 10];
    format!(
        "measured: a fixed loop, {} times: the median took {:.1} % longer than the fastest, nine in ten at most {:.1} %, the slowest {:.0} %",
        took.len(),
        over(middle),
        over(nine_in_ten),
        over(slowest)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn flags_are_whole_words_of_the_right_line() {
        let has = has("model name\t: sha_ni\nflags\t\t: fpu avx512f aes constant_tsc\nbugs\t: vaes\nflags\t: gfni\n");
        assert!(has("aes") && has("avx512f") && has("constant_tsc"));
        assert!(!has("avx512") && !has("vaes") && !has("sha_ni") && !has("gfni"));
        let nothing = super::has("Features : aes pmull\n");
        assert!(!nothing("aes"));
    }

    #[test]
    fn policies_that_are_equal_are_told_once() {
        let folder = std::env::temp_dir().join(format!("sealane-report-governors-{}", std::process::id()));
        let policy = |number: u32, governor: &str| {
            let at = folder.join(format!("cpufreq/policy{number}"));
            fs::create_dir_all(&at).unwrap();
            for (name, text) in
                [("scaling_governor", governor), ("scaling_driver", "acpi-cpufreq"), ("scaling_max_freq", "3400000")]
            {
                fs::write(at.join(name), format!("{text}\n")).unwrap();
            }
        };
        assert_eq!(governors(&folder), ["the kernel shows no frequency governor (cpufreq)"]);
        policy(0, "schedutil");
        policy(1, "schedutil");
        let one = "governor schedutil (acpi-cpufreq), from unknown to 3400 MHz";
        assert_eq!(governors(&folder), [one]);
        policy(2, "performance");
        assert_eq!(governors(&folder), ["governor performance (acpi-cpufreq), from unknown to 3400 MHz", one]);
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn the_counter_is_described_by_its_flags() {
        let told = |flags: &'static str, rate| counter(&has(&format!("flags : {flags}")), rate);
        assert!(told("constant_tsc nonstop_tsc", Some(2.6e9)).contains("2.60 GHz, at a constant rate, whatever"));
        assert!(told("constant_tsc", Some(1e9)).contains("not while the CPU sleeps"));
        assert!(told("tsc", Some(1e9)).contains("possibly with the CPU's frequency"));
        assert!(told("constant_tsc", None).starts_with("no time-stamp counter"));
    }

    #[test]
    fn loops_are_compared_with_the_fastest() {
        let took = [2.0, 1.0, 1.1, 1.2, 1.0, 1.0, 1.1, 1.1, 1.1, 1.1, 1.3];
        assert_eq!(
            steadiness(&took),
            "measured: a fixed loop, 11 times: the median took 10.0 % longer than the fastest, nine in ten at most 30.0 %, the slowest 100 %"
        );
        assert!(steadiness(&[1.0]).contains("not measured"));
        assert!(fixed_loops(Duration::ZERO).iter().all(|seconds| *seconds > 0.0));
    }

    #[test]
    fn this_machine_is_described() {
        let machine = machine(&Origin::Shipped("avx2"));
        assert!(machine.cpus > 0 && machine.kernel != UNKNOWN && machine.table == "shipped: avx2");
        let names: Vec<&str> = machine.versions.iter().map(|(name, _)| name.as_str()).collect();
        assert!(names.starts_with(&["Sealane", "rustc", "OpenSSL", "AWS-LC"]), "{names:?}");
        let is_plain = |(name, version): &(String, String)| !version.is_empty() && !version.starts_with(name.as_str());
        assert!(machine.versions.iter().all(is_plain), "{:?}", machine.versions);
    }
}
