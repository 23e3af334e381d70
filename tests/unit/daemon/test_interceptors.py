import hashlib

from constraintd.server.daemon import interceptors_of
from constraintd.server.error_interceptor import ErrorInterceptor
from constraintd.server.request_interceptor import RequestInterceptor
from constraintd.server.token_interceptor import TokenInterceptor
from constraintd.serving.tokens import TokensFile


def test_the_order_of_interceptors_is_this(tmp_path):
    file = tmp_path / "tokens"
    file.write_text(f"ann {hashlib.sha256(b'x').hexdigest()}\n")
    ordered = interceptors_of(RequestInterceptor(), TokensFile(file))
    assert [type(each) for each in ordered] == [RequestInterceptor, TokenInterceptor, ErrorInterceptor]


def test_without_tokens_there_is_no_gate():
    ordered = interceptors_of(RequestInterceptor(), None)
    assert [type(each) for each in ordered] == [RequestInterceptor, ErrorInterceptor]
