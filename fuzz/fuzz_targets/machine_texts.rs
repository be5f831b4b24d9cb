//! The texts that `sealane doctor` reads: names are canonical, values are of one line, and drop-ins only add.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sealane_doctor::modprobe::{self, Block};
use sealane_doctor::modules::{self, Evidence, MODULES, State};
use sealane_doctor::sections::Sections;
use sealane_doctor::sysctl;

fuzz_target!(|data: &[u8]| {
    let text = &*String::from_utf8_lossy(data);
    let mut blocks = modprobe::parse(text);
    blocks.extend(modprobe::command_line(text));
    for Block::Always(name) | Block::ByAlias(name) in &blocks {
        assert!(!name.contains('-'));
    }
    let files = modules::file_names(text);
    assert!(files.iter().all(|name| !name.is_empty() && !name.contains(['-', '/'])));
    let evidence = Evidence {
        loaded: modules::loaded(text),
        built_in: Some(files.clone()),
        files: Some(files),
        options: Some(modules::options(text)),
        blocks: blocks.into_iter().map(|block| ("here".to_owned(), block)).collect(),
        is_closed: data.len() % 2 == 1,
    };
    for module in &MODULES {
        // With all texts read, all is known.
        assert_ne!(evidence.state(module), State::Unseen);
        assert!(evidence.blacklisted_in_vain(module).is_none() || !module.by_alias);
    }
    let mut sections = Sections::default();
    sections.read(text);
    let before = sections.list("Service", "ExecStart").len();
    sections.read("[Service]\nExecStart=more\n");
    let list = sections.list("Service", "ExecStart");
    assert_eq!(list.len(), before + 1);
    assert!(list.iter().all(|value| !value.is_empty() && !value.contains('\n')));
    let _ = (sections.refuses_family("AF_ALG"), sections.is_on("Network", "ManageForeignRoutes"));
    let settings = sysctl::parse(text);
    assert!(settings.iter().all(|setting| !setting.key.is_empty() && !setting.key.contains('\n')));
    let _ = sysctl::makes_strict(&settings, "x");
});
