//! Writes a report with invented figures into a folder, as `sealane bench` does, for those who change how it looks:
//! `sample_page FOLDER`.

#[path = "../tests/sample/mod.rs"]
mod sample;

use std::error::Error;
use std::path::PathBuf;

fn main() -> Result<(), Box<dyn Error>> {
    let folder = PathBuf::from(std::env::args_os().nth(1).ok_or("usage: sample_page FOLDER")?);
    let report = sample::report();
    std::fs::create_dir_all(&folder)?;
    std::fs::write(folder.join("index.html"), sealane_report::page::page(&report))?;
    std::fs::write(folder.join("data.json"), serde_json::to_vec_pretty(&report)?)?;
    print!("{}", sealane_report::summary::summary(&report));
    Ok(())
}
