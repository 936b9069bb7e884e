//! The store from outside, on a real folder.
