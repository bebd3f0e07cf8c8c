//! The contestant that speaks tarpc: bincode in length-prefixed frames over a Unix stream socket.

use std::path::Path;

use bytes::Bytes;
use tarpc::context::{self, Context};
use tarpc::serde_transport;
use tarpc::server::{BaseChannel, Channel};
use tarpc::tokio_serde::formats::Bincode;
use tarpc::tokio_util::codec::{Framed, LengthDelimitedCodec};
use tokio::net::{UnixListener, UnixStream};
use tokio_stream::StreamExt;

use super::outcome::failed;
use super::service;
use crate::Error;

/// Longest frame, in bytes: the largest payload of the benchmark and room for what is around it.
const FRAME_BYTES_MAX: usize = 17 << 20;

/// The service as tarpc knows it.
#[tarpc::service]
trait Calls {
    async fn square(number: u64) -> u64;
    async fn whole(payload: Bytes) -> Bytes;
}

#[derive(Clone, Copy)]
struct Server;

impl Calls for Server {
    async fn square(self, _: Context, number: u64) -> u64 {
        service::square(number)
    }

    async fn whole(self, _: Context, payload: Bytes) -> Bytes {
        payload
    }
}

fn framed(stream: UnixStream) -> Framed<UnixStream, LengthDelimitedCodec> {
    let codec = LengthDelimitedCodec::builder()
        .max_frame_length(FRAME_BYTES_MAX)
        .new_codec();
    Framed::new(stream, codec)
}

/// Serves at a Unix socket.
pub(super) fn serve(path: &Path) -> Result<(), Error> {
    let listener = UnixListener::bind(path).map_err(failed("listen"))?;
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let transport = serde_transport::new(framed(stream), Bincode::default());
            let requests = BaseChannel::with_defaults(transport).execute(Server.serve());
            tokio::spawn(async move {
                tokio::pin!(requests);
                while let Some(request) = requests.next().await {
                    tokio::spawn(request);
                }
            });
        }
    });
    Ok(())
}

/// One client's connection.
#[derive(Clone)]
pub(super) struct Client(CallsClient);

impl Client {
    /// Connects to [`serve`].
    pub(super) async fn connect(path: &Path) -> Result<Self, Error> {
        let stream = UnixStream::connect(path).await.map_err(failed("connect"))?;
        let transport = serde_transport::new(framed(stream), Bincode::default());
        Ok(Self(
            CallsClient::new(tarpc::client::Config::default(), transport).spawn(),
        ))
    }

    pub(super) async fn square(&self, number: u64) -> Result<u64, Error> {
        self.0
            .square(context::current(), number)
            .await
            .map_err(failed("call"))
    }

    pub(super) async fn echo(&self, payload: Bytes) -> Result<Bytes, Error> {
        self.0
            .whole(context::current(), payload)
            .await
            .map_err(failed("call"))
    }
}
