//! The plugin in its sandbox: honest ones, hostile ones, and the way in and out.

mod cache;
mod common;
mod document;
mod exchange;
mod file;
mod hostile;
mod recorded;
