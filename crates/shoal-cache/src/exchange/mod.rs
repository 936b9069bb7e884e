//! A request of a client, once it is admitted, and the response to it.

mod access_log;
mod admitted;
mod body;
pub mod location;
pub mod record;
pub mod respond;
mod s3_log;

pub use self::admitted::{Admitted, host};
pub use self::body::ResponseBody;

use http::Response;
use shoal_s3::error::S3Error;

/// The response to a request, or the error that becomes one.
pub type ResponseResult = Result<Response<ResponseBody>, S3Error>;
