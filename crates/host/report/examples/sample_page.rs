//! Prints the page of a report with invented figures, for those who change how it looks.

#[path = "../tests/sample/mod.rs"]
mod sample;

fn main() {
    println!("{}", sealane_report::page::page(&sample::report()));
}
