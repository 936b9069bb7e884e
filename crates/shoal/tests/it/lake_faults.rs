//! Stories of a lake that is silent, breaks off or cannot be reached, as clients and operators meet them.

mod broken;
mod descriptors;
mod half_bodies;
mod measured;
mod named;
mod silent;
