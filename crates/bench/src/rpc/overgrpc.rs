//! The contestant that speaks gRPC: tonic over a Unix stream socket, without generated code.
//!
//! Windows are as large as irpc-uds's, so that large payloads do not wait for HTTP/2's default of 64 KiB.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::path::Path;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio_stream::wrappers::{ReceiverStream, UnixListenerStream};
use tokio_stream::{Stream, StreamExt};
use tonic::body::Body;
use tonic::client;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::codegen::{BoxFuture, Service, http};
use tonic::server::{Grpc, StreamingService, UnaryService};
use tonic::transport::{Channel, Endpoint, Server};
use tonic::{Request, Response, Status, Streaming};
use tonic_prost::ProstCodec;

use super::outcome::{check, failed};
use super::service;
use crate::Error;

const SQUARE: &str = "/bench.Echo/Square";
const WHOLE: &str = "/bench.Echo/Whole";
const MULTIPLY: &str = "/bench.Echo/Multiply";

/// Flow control window of a stream, in bytes.
const STREAM_WINDOW_BYTES: u32 = irpc_uds::STREAM_WINDOW_BYTES;

/// Flow control window of a connection, in bytes.
const CONNECTION_WINDOW_BYTES: u32 = irpc_uds::CONNECTION_WINDOW_BYTES;

/// Streams at once.
const STREAMS: u32 = 1_024;

/// Messages that wait for the connection to take them.
const STREAM_CAPACITY: usize = 256;

/// `message Number { uint64 value = 1; }`
#[derive(Clone, Copy, PartialEq, prost::Message)]
struct Number {
    #[prost(uint64, tag = "1")]
    value: u64,
}

/// `message Payload { bytes bytes = 1; }`
#[derive(Clone, PartialEq, prost::Message)]
struct Payload {
    #[prost(bytes = "bytes", tag = "1")]
    bytes: Bytes,
}

/// The three methods, and the service that finds them by path.
#[derive(Clone, Copy)]
struct Methods;

impl UnaryService<Number> for Methods {
    type Response = Number;
    type Future = Ready<Result<Response<Number>, Status>>;

    fn call(&mut self, request: Request<Number>) -> Self::Future {
        let value = service::square(request.into_inner().value);
        ready(Ok(Response::new(Number { value })))
    }
}

impl UnaryService<Payload> for Methods {
    type Response = Payload;
    type Future = Ready<Result<Response<Payload>, Status>>;

    fn call(&mut self, request: Request<Payload>) -> Self::Future {
        ready(Ok(Response::new(request.into_inner())))
    }
}

impl StreamingService<Number> for Methods {
    type Response = Number;
    type ResponseStream = Pin<Box<dyn Stream<Item = Result<Number, Status>> + Send>>;
    type Future = Ready<Result<Response<Self::ResponseStream>, Status>>;

    fn call(&mut self, request: Request<Streaming<Number>>) -> Self::Future {
        let answers = request.into_inner().map(|number| {
            number.map(|Number { value }| Number {
                value: service::multiply(value),
            })
        });
        ready(Ok(Response::new(Box::pin(answers))))
    }
}

impl Service<http::Request<Body>> for Methods {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<Self::Response, Infallible>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        Box::pin(async move {
            let numbers = || Grpc::new(ProstCodec::<Number, Number>::default());
            Ok(match request.uri().path() {
                SQUARE => numbers().unary(Methods, request).await,
                WHOLE => {
                    let mut payloads = Grpc::new(ProstCodec::<Payload, Payload>::default())
                        .max_decoding_message_size(usize::MAX)
                        .max_encoding_message_size(usize::MAX);
                    payloads.unary(Methods, request).await
                }
                MULTIPLY => numbers().streaming(Methods, request).await,
                _ => Status::unimplemented("there is no such method").into_http(),
            })
        })
    }
}

/// Serves at a Unix socket.
pub(super) fn serve(path: &Path) -> Result<(), Error> {
    let listener = tokio::net::UnixListener::bind(path).map_err(failed("listen"))?;
    let server = Server::builder()
        .initial_stream_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .max_concurrent_streams(STREAMS);
    tokio::spawn(async move {
        if let Err(error) = server
            .serve_with_incoming(Methods, UnixListenerStream::new(listener))
            .await
        {
            eprintln!("tonic: {error}");
        }
    });
    Ok(())
}

/// One client's connection.
#[derive(Clone)]
pub(super) struct Client(Channel);

impl Client {
    /// Connects to [`serve`].
    pub(super) async fn connect(path: &Path) -> Result<Self, Error> {
        let endpoint = Endpoint::try_from(format!("unix://{}", path.display()));
        let endpoint = endpoint
            .map_err(failed("connect"))?
            .initial_stream_window_size(STREAM_WINDOW_BYTES)
            .initial_connection_window_size(CONNECTION_WINDOW_BYTES);
        Ok(Self(endpoint.connect().await.map_err(failed("connect"))?))
    }

    async fn unary<M: prost::Message + Default + 'static>(
        &self,
        message: M,
        path: &'static str,
    ) -> Result<M, Error> {
        let mut grpc = client::Grpc::new(self.0.clone())
            .max_decoding_message_size(usize::MAX)
            .max_encoding_message_size(usize::MAX);
        grpc.ready().await.map_err(failed("call"))?;
        let path = PathAndQuery::from_static(path);
        let answer = grpc.unary(Request::new(message), path, ProstCodec::<M, M>::default());
        Ok(answer.await.map_err(failed("call"))?.into_inner())
    }

    pub(super) async fn square(&self, value: u64) -> Result<u64, Error> {
        Ok(self.unary(Number { value }, SQUARE).await?.value)
    }

    pub(super) async fn echo(&self, bytes: Bytes) -> Result<Bytes, Error> {
        Ok(self.unary(Payload { bytes }, WHOLE).await?.bytes)
    }

    /// Sends numbers for `span` and returns how many answers came, all of them right.
    pub(super) async fn messages(&self, span: Duration) -> Result<u64, Error> {
        let (send, numbers) = tokio::sync::mpsc::channel(STREAM_CAPACITY);
        let mut grpc = client::Grpc::new(self.0.clone());
        grpc.ready().await.map_err(failed("open a stream"))?;
        let codec = ProstCodec::<Number, Number>::default();
        let path = PathAndQuery::from_static(MULTIPLY);
        let streaming = grpc.streaming(Request::new(ReceiverStream::new(numbers)), path, codec);
        let mut answers = streaming.await.map_err(failed("open a stream"))?.into_inner();
        let sender = tokio::spawn(async move {
            let start = Instant::now();
            let mut value = 0_u64;
            while start.elapsed() < span {
                for _ in 0..STREAM_CAPACITY {
                    if send.send(Number { value }).await.is_err() {
                        return value;
                    }
                    value += 1;
                }
            }
            value
        });
        let mut received = 0;
        while let Some(answer) = answers.message().await.map_err(failed("read the stream"))? {
            check(answer.value == service::multiply(received))?;
            received += 1;
        }
        check(sender.await.map_err(failed("send into the stream"))? == received)?;
        Ok(received)
    }
}
