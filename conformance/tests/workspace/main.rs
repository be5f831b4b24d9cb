//! The workspace itself: its walls, the messages of its executable, what it sees of a machine, and its keeper of keys.

mod doctor;
mod keeper;
mod log;
mod walls;
