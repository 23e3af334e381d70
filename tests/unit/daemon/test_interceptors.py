from constraintd.server.daemon import INTERCEPTORS
from constraintd.server.error_interceptor import ErrorInterceptor


def test_the_order_of_interceptors_is_this():
    assert INTERCEPTORS == (ErrorInterceptor,)
