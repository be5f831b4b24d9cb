//! Measures the cost of authenticating and encrypting packets on this machine, and writes, draws and compares the results.
//!
//! [`parts`] measures, one file for each part of the report. A part gives charts of figures ([`data`]), beside the figures that were
//! published for other machines. [`machine`] describes the machine. [`page`] draws a report as one HTML file, [`summary`] prints the main
//! charts as tables, and [`compare`] lists the differences of two reports. [`advise`] ranks the choices for a workload.
#![forbid(unsafe_code)]

pub mod advise;
pub mod compare;
pub mod data;
pub mod interrupt;
pub mod machine;
pub mod page;
pub mod parts;
pub mod summary;

mod number;
mod published;
