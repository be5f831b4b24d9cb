//! The workspace itself: its walls, and the messages of its executable.

mod log;
mod walls;
