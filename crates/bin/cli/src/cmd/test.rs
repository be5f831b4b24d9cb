//! `sealane crypto test`: runs the self-tests of the drivers.

use super::list::{matching, state_name};
use crate::answer::Answer;
use crate::args::CryptoTest;
use crate::render::{self, Align, Table};
use anyhow::Result;
use sealane_crypto::registry::TestState;
use serde::Serialize;
use std::io::Write;

#[derive(Serialize)]
struct Outcome {
    name: String,
    driver: String,
    module: &'static str,
    selftest: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    difference: Option<String>,
}

pub(crate) fn test(args: &CryptoTest, out: &mut impl Write) -> Result<Answer> {
    let registry = super::registry()?;
    let mut outcomes = Vec::new();
    for row in matching(&registry, args.name.as_deref()) {
        let difference = registry.self_test(&row).err();
        outcomes.push(Outcome {
            name: row.info.name.clone(),
            driver: row.driver.clone(),
            module: row.module,
            selftest: state_name(row.test_state()),
            difference,
        });
    }
    let count = |state| outcomes.iter().filter(|o| o.selftest == state_name(state)).count();
    let (passed, failed, exempt) = (count(TestState::Passed), count(TestState::Failed), count(TestState::Exempt));
    if args.json {
        render::json(out, &outcomes)?;
    } else {
        let mut table = Table::new(&[
            ("driver", Align::Left),
            ("algorithm", Align::Left),
            ("self-test", Align::Left),
            ("", Align::Left),
        ]);
        for o in &outcomes {
            table.row(vec![
                o.driver.clone(),
                o.name.clone(),
                o.selftest.to_owned(),
                o.difference.clone().unwrap_or_default(),
            ]);
        }
        table.print(out)?;
        writeln!(out, "\n{passed} passed, {failed} failed, {exempt} exempt (null drivers, which compute nothing)")?;
        for text in sealane_drivers::left_out() {
            eprintln!("sealane: {text}");
        }
    }
    Ok(if failed > 0 || outcomes.is_empty() { Answer::No } else { Answer::Yes })
}
