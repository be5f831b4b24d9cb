//! Programs that the library is not for, each served by the launcher or told what to do: those of other loaders, of sanitizers,
//! of other architectures, and under a container's seccomp profile.

use super::*;

/// The digest of "abc".
const ABC: &str = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad\n";

/// Compiles a program of this folder; none where there is no compiler for it.
fn build(compiler: &str, source: &str, name: &str, options: &[&str]) -> Option<PathBuf> {
    if !present(compiler) {
        return None;
    }
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs").join(source);
    let out = tmp().join(name);
    let built = Command::new(compiler).args(["-O1", "-Wall", "-o"]).arg(&out).arg(source).args(options).output();
    let built = built.expect("the compiler runs");
    let text = String::from_utf8_lossy(&built.stderr);
    if !built.status.success() {
        eprintln!("{compiler} {options:?}: {text}");
    }
    built.status.success().then_some(out)
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The output of a program, which is to succeed and to complain of nothing.
fn quietly(command: &mut Command) -> String {
    let output = succeeds(command);
    assert_eq!(text(&output.stderr), "", "{command:?}");
    text(&output.stdout)
}

/// A loader that is not glibc's ends its program if it finds a library that it cannot load. It does not find ours.
#[test]
fn programs_of_another_loader() {
    if !present("cc") {
        return;
    }
    let loader = build("cc", "loader.c", "loader", &LOADER).expect("it is built");
    let interpreter = format!("-Wl,--dynamic-linker={}", loader.display());
    let program = build("cc", "profile.c", "of-another-loader", &[&interpreter]).expect("it is built");
    let path = program.to_string_lossy();
    for how in ["open", "open,seccomp", "open,audit"] {
        let output = succeeds(launch(how).arg(&program));
        assert_eq!(text(&output.stdout), ABC, "{how}: {}", text(&output.stderr));
    }
    // As the child of a program that has the library, and beside the libraries of others.
    assert_eq!(quietly(launch("open").args(["sh", "-c", &format!("{path}; {path}")])), ABC.repeat(2));
    let others = "/nonexistent/one.so /nonexistent/two.so";
    assert_eq!(text(&succeeds(launch("open").arg(&program).env("LD_PRELOAD", others)).stdout), ABC);
}

const LOADER: [&str; 7] =
    ["-shared", "-fPIC", "-nostdlib", "-ffreestanding", "-fno-stack-protector", "-fno-builtin", "-Wl,-e,_start"];

#[test]
fn musl_program() {
    const TEST: &str = "others::musl_program";
    if !present("musl-gcc") {
        return skip(TEST, "needs musl-gcc (musl-tools)");
    }
    let machine = Command::new("cc").arg("-dumpmachine").output().expect("cc runs");
    let headers = format!("/usr/include/{}", text(&machine.stdout).trim());
    let options = ["-idirafter", "/usr/include", "-idirafter", &headers, "-pthread", "-w"];
    let program = build("musl-gcc", "alg.c", "alg-musl", &options).expect("it is built");
    let path = program.to_string_lossy();
    for part in ["basic", "dups", "forks", "blocking", "bystanders", "stops", "splices", "beside", "polls", "many"] {
        quietly(launch("open").arg(&program).arg(part));
    }
    quietly(launch("open").args(["sh", "-c", &format!("{path} basic && {path} forks")]));
}

/// Programs built to watch their own memory run as they do without us, leak checker and all, and are served by the launcher.
#[test]
fn programs_with_a_sanitizer() {
    const TEST: &str = "others::programs_with_a_sanitizer";
    for (kind, flags) in [("address", &[][..]), ("address", &["-static-libasan"]), ("thread", &[]), ("undefined", &[])]
    {
        let sanitize = format!("-fsanitize={kind}");
        let name = format!("alg-{kind}{}", flags.concat());
        let Some(program) = build("cc", "alg.c", &name, &[&[&*sanitize, "-g", "-pthread"][..], flags].concat()) else {
            skip(TEST, "needs cc with the runtimes of its sanitizers");
            continue;
        };
        let path = program.to_string_lossy();
        // The runtimes do not bear more: what they say of it without us, too, is their own.
        for part in ["basic", "forks"] {
            quietly(launch("open").arg(&program).arg(part));
        }
        quietly(launch("open").args(["sh", "-c", &format!("{path} basic && {path} basic")]));
    }
}

/// An executable of one segment, whose code begins behind its headers; the data follows the code.
#[cfg(target_arch = "x86_64")]
fn executable(name: &str, is_32_bit: bool, code: impl Fn(u32) -> Vec<u8>) -> PathBuf {
    const BASE: u32 = 0x0804_8000;
    let headers: u32 = if is_32_bit { 52 + 32 } else { 64 + 56 };
    let body = code(BASE + headers);
    let size = headers + body.len() as u32;
    let mut file = b"\x7fELF".to_vec();
    let (class, machine) = if is_32_bit { (1, 3) } else { (2, 62) };
    file.extend([class, 1, 1]);
    file.extend([0; 9]);
    file.extend([2, 0, machine, 0]);
    file.extend(1u32.to_le_bytes());
    let word = |file: &mut Vec<u8>, value: u32| match is_32_bit {
        true => file.extend(value.to_le_bytes()),
        false => file.extend(u64::from(value).to_le_bytes()),
    };
    word(&mut file, BASE + headers);
    word(&mut file, if is_32_bit { 52 } else { 64 });
    word(&mut file, 0);
    file.extend(0u32.to_le_bytes());
    let (header, segment) = if is_32_bit { (52u16, 32u16) } else { (64, 56) };
    [header, segment, 1, 0, 0, 0].into_iter().for_each(|half| file.extend(half.to_le_bytes()));
    // PT_LOAD, readable and executable.
    file.extend(1u32.to_le_bytes());
    if !is_32_bit {
        file.extend(5u32.to_le_bytes());
    }
    [0, BASE, BASE, size, size].into_iter().for_each(|value| word(&mut file, value));
    if is_32_bit {
        file.extend(5u32.to_le_bytes());
    }
    word(&mut file, 0x1000);
    file.extend(body);
    assert_eq!(file.len() as u32, size);
    let (data, path) = (tmp().join(format!("{name}.data")), tmp().join(name));
    std::fs::write(&data, file).expect("a file");
    // A child of another test may hold what this process has open for writing, and such a file cannot be run.
    let installed = Command::new("install").args(["-m", "755"]).arg(&data).arg(&path).status();
    assert!(installed.expect("install runs").success());
    path
}

/// Code that sets eax, ebx, ecx, edx and esi, and makes an i386 call.
#[cfg(target_arch = "x86_64")]
fn int_80(words: &[u32]) -> Vec<u8> {
    let set = |(opcode, word): (u8, &u32)| [&[opcode][..], &word.to_le_bytes()].concat();
    let mut code: Vec<u8> = [0xb8, 0xbb, 0xb9, 0xba, 0xbe].into_iter().zip(words).flat_map(set).collect();
    code.extend([0xcd, 0x80]);
    code
}

/// Code that ends the program with the errno of the last call, 0 for none: `neg eax` if it is negative, `exit(eax)`.
#[cfg(target_arch = "x86_64")]
const END: [u8; 19] =
    [0x31, 0xdb, 0x85, 0xc0, 0x0f, 0x89, 0x04, 0x00, 0x00, 0x00, 0xf7, 0xd8, 0x89, 0xc3, 0xb8, 0x01, 0x00, 0x00, 0x00];

/// A program that makes one i386 call and ends with its errno.
#[cfg(target_arch = "x86_64")]
fn i386(name: &str, words: &[u32]) -> PathBuf {
    executable(name, true, |_| [&int_80(words)[..], &END, &[0xcd, 0x80]].concat())
}

/// The same by `socketcall`, whose arguments are in memory.
#[cfg(target_arch = "x86_64")]
fn i386_socketcall(name: &str, what: u32, words: &[u32]) -> PathBuf {
    executable(name, true, |at| {
        let code = |data: u32| [&int_80(&[102, what, data])[..], &END, &[0xcd, 0x80]].concat();
        let data = at + code(0).len() as u32;
        [code(data), words.iter().flat_map(|word| word.to_le_bytes()).collect()].concat()
    })
}

/// A program of another architecture does not reach the kernel's crypto sockets: it is refused, and a sentence says what to do.
#[cfg(target_arch = "x86_64")]
#[test]
fn programs_of_another_architecture() {
    const TEST: &str = "others::programs_of_another_architecture";
    let status = |command: &mut Command| {
        let output = command.output().expect("the launcher runs");
        (output.status.code(), text(&output.stderr))
    };
    let plain = i386("i386-none", &[20]);
    if Command::new(&plain).status().is_err() {
        return skip(TEST, "needs a kernel that runs 32-bit programs");
    }
    // One that asks for nothing of ours runs as ever, alone or as a child of a shell.
    assert_eq!(status(launch("open").arg(&plain)), (Some(0), String::new()));
    let (alg, crypto) = (["AF_ALG", "97"], ["NETLINK_CRYPTO", "93"]);
    for (program, [what, errno]) in [
        (i386("i386-alg", &[359, 38, 5, 0]), alg),
        (i386("i386-crypto", &[359, 16, 3, 21]), crypto),
        (i386_socketcall("i386-alg-old", 1, &[38, 5, 0]), alg),
        (i386_socketcall("i386-crypto-old", 1, &[16, 3, 21]), crypto),
        (x32("x32-alg", &[0x4000_0029, 38, 5, 0]), alg),
    ] {
        for how in ["open", "open,audit", "open,seccomp"] {
            let (code, said) = status(launch(how).arg(&program));
            assert_eq!(code.map(|code| code.to_string()).as_deref(), Some(errno), "{program:?} {said}");
            let sentence = format!("{} (process ", program.display());
            assert!(
                said.contains(&sentence) && said.contains(&format!("{what} is served to 64-bit programs only")),
                "{said}"
            );
        }
        // It is said once for each program.
        let (code, said) = status(launch("open").args(["sh", "-c", "$0; $0; $0"]).arg(&program));
        assert_eq!(
            (code.map(|code| code.to_string()).as_deref(), said.matches("64-bit build").count()),
            (Some(errno), 1),
            "{said}"
        );
    }
    // Other sockets are the kernel's, in the old way, too.
    for program in [i386("i386-udp", &[359, 2, 2, 0]), i386_socketcall("i386-udp-old", 1, &[2, 2, 0])] {
        assert_eq!(status(launch("open").arg(&program)), (Some(0), String::new()));
    }
    // NETLINK_XFRM without a daemon is refused to all programs, and so is PF_KEY.
    let (code, said) = status(launch("open").arg(i386("i386-xfrm", &[359, 16, 3, 6])));
    assert!(code == Some(93) && said.contains("no daemon serves IPsec"), "{code:?} {said}");
    let (code, said) = status(launch("open").arg(i386("i386-key", &[359, 15, 3, 2])));
    assert!(code == Some(97) && said.contains("asks for PF_KEY, which is not served"), "{code:?} {said}");
    let (code, said) = status(launch("open,preload").arg(&plain));
    assert!(code == Some(0) && said.contains("a program of another architecture"), "{said}");
}

/// A 64-bit program that makes one call by x32's table.
#[cfg(target_arch = "x86_64")]
fn x32(name: &str, words: &[u32; 4]) -> PathBuf {
    // eax, edi, esi, edx
    let set = |(opcode, word): (u8, &u32)| [&[opcode][..], &word.to_le_bytes()].concat();
    let call: Vec<u8> = [0xb8, 0xbf, 0xbe, 0xba].into_iter().zip(words).flat_map(set).chain([0x0f, 0x05]).collect();
    executable(name, false, |_| [&call[..], &END, &[0xcd, 0x80]].concat())
}

/// The launcher does not see calls that a container's profile answers: it says so before the program runs.
#[test]
fn profiles_that_refuse_af_alg() {
    let (Some(fixed), Some(dynamic)) = (c_program(&["-static"]), c_program(&[])) else { return };
    let profile = build("cc", "profile.c", "profile", &[]).expect("it is built");
    let under = |errno: &str, how: &str, program: &Path| {
        let mut command = Command::new(&profile);
        command.arg(errno).arg(target().join("examples/launch")).arg(how).env("SEALANE_SHIM", shim());
        let output = command.arg(program).arg("basic").output().expect("it runs");
        (output.status.code(), text(&output.stderr))
    };
    for (errno, answer) in [
        ("1", "answers EPERM to"),
        ("38", "answers ENOSYS to"),
        ("97", "answers EAFNOSUPPORT to"),
        ("0", "ends processes for"),
    ] {
        let sentence = format!("the seccomp profile that this process runs under {answer} socket(AF_ALG)");
        for how in ["open", "open,audit"] {
            let (code, said) = under(errno, how, &dynamic);
            assert!(code == Some(0) && said.matches(&sentence).count() == 1, "{how}: {code:?} {said}");
        }
        let (code, said) = under(errno, "open", &fixed);
        assert!(code != Some(0) && said.contains(&sentence), "{code:?} {said}");
        let (code, said) = under(errno, "open,seccomp", &dynamic);
        assert!(code == Some(125) && said.contains("nothing could be served"), "{code:?} {said}");
        // The library alone needs nothing of the filter.
        assert_eq!(under(errno, "open,preload", &dynamic), (Some(0), String::new()));
    }
    // It is said of programs that ask for nothing, too, and of none where there is no such profile.
    let (code, said) = under("1", "open", Path::new("/bin/true"));
    assert!(code == Some(0) && said.contains("EPERM"), "{said}");
    assert_eq!(quietly(launch("open").arg(&dynamic).arg("basic")), "");
}
