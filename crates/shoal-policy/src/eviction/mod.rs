//! Which block leaves when room is needed. One policy a file.
