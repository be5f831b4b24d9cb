//! The workspace itself: its walls, the messages of its executable, and what it sees of a machine.

mod doctor;
mod log;
mod walls;
