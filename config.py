"""pyinfra runs this first of all: what is wrong with the project is said before any host is waited for."""

from tailtrain.fleet.early import check_before_connecting

check_before_connecting()
