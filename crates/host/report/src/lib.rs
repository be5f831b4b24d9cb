//! The costs of each way to authenticate and encrypt packets on this machine: measured, kept, drawn and compared.
//!
//! [`parts`] measures, one file for each part of the report. A part gives charts of figures ([`data`]), beside the figures that were
//! published for other machines. [`machine`] says what was measured on. [`page`] draws a report as one HTML file, [`summary`] prints what
//! one line can say of each chart, and [`compare`] tells two reports apart.
#![forbid(unsafe_code)]

pub mod compare;
pub mod data;
pub mod interrupt;
pub mod machine;
pub mod page;
pub mod parts;
pub mod summary;

mod number;
mod published;
