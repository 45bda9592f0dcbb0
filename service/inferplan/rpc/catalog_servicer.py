"""CatalogService: what the catalogue knows. Adding to it comes with a later version and answers UNIMPLEMENTED."""

from __future__ import annotations

import grpc

from inferplan.planning.list_request import ListRequest
from inferplan.planning.planner import Planner
from inferplan.rpc.convert.catalog import accelerator_to_wire, engine_to_wire, model_to_wire
from inferplan.rpc.convert.common import ACCELERATORS, ENGINES, MODELS
from inferplan.rpc.validation import message_violations, raise_violations
from inferplan.v1 import accelerator_pb2, catalog_service_pb2, catalog_service_pb2_grpc, engine_pb2, model_pb2


class CatalogServicer(catalog_service_pb2_grpc.CatalogServiceServicer):
    """Validates, looks up, converts."""

    def __init__(self, planner: Planner) -> None:
        self._planner = planner

    def ListModels(
        self, request: catalog_service_pb2.ListModelsRequest, _context: grpc.ServicerContext
    ) -> catalog_service_pb2.ListModelsResponse:
        raise_violations(message_violations(request))
        models, token = self._planner.list_models(ListRequest(request.page_size, request.page_token))
        return catalog_service_pb2.ListModelsResponse(
            models=[model_to_wire(model) for model in models], next_page_token=token
        )

    def GetModel(self, request: catalog_service_pb2.GetModelRequest, _context: grpc.ServicerContext) -> model_pb2.Model:
        raise_violations(message_violations(request))
        return model_to_wire(self._planner.catalog.model(request.name.removeprefix(MODELS)))

    def ListAccelerators(
        self, request: catalog_service_pb2.ListAcceleratorsRequest, _context: grpc.ServicerContext
    ) -> catalog_service_pb2.ListAcceleratorsResponse:
        raise_violations(message_violations(request))
        page = ListRequest(request.page_size, request.page_token)
        accelerators, token = self._planner.list_accelerators(page)
        return catalog_service_pb2.ListAcceleratorsResponse(
            accelerators=[accelerator_to_wire(accelerator) for accelerator in accelerators], next_page_token=token
        )

    def GetAccelerator(
        self, request: catalog_service_pb2.GetAcceleratorRequest, _context: grpc.ServicerContext
    ) -> accelerator_pb2.Accelerator:
        raise_violations(message_violations(request))
        return accelerator_to_wire(self._planner.catalog.accelerator(request.name.removeprefix(ACCELERATORS)))

    def ListEngines(
        self, request: catalog_service_pb2.ListEnginesRequest, _context: grpc.ServicerContext
    ) -> catalog_service_pb2.ListEnginesResponse:
        raise_violations(message_violations(request))
        engines, token = self._planner.list_engines(ListRequest(request.page_size, request.page_token))
        return catalog_service_pb2.ListEnginesResponse(
            engines=[engine_to_wire(engine) for engine in engines], next_page_token=token
        )

    def GetEngine(
        self, request: catalog_service_pb2.GetEngineRequest, _context: grpc.ServicerContext
    ) -> engine_pb2.Engine:
        raise_violations(message_violations(request))
        return engine_to_wire(self._planner.catalog.engine(request.name.removeprefix(ENGINES)))
