//! The part of the help about the environment variable RUST_LOG, which `crate::log` reads.

/// The help of the commands whose libraries report.
pub(super) const RUST_LOG: &str = "Environment: RUST_LOG selects the messages of sealane by level and target, as a list \
                                   such as 'debug' or 'warn,sealane_ipsec=debug'. The levels are off, error, warn, \
                                   info, debug and trace; the default is info. If it asks for debug, each line on \
                                   standard error shows its level, its target and its fields. In systemd's journal \
                                   messages always have a priority and fields.";
/// Its end for those of them that run a program.
pub(super) const OF_THE_PROGRAM: &str = "The program gets the variable too; directives with other targets than sealane's \
                                         do not concern sealane.";
