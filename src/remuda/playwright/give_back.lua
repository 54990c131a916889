-- Ends a connection, once, and has its worker restart if that is due.
-- ARGV[1] worker
-- ARGV[2] connection
-- ARGV[3] concurrent, MAX_CONCURRENT_SESSIONS
-- ARGV[4] lifetime, MAX_LIFETIME_SESSIONS
-- ARGV[5] percent of the workers that may be out at the same time
-- ARGV[6] seconds for which the shutdown command stays
-- ARGV[7] outcome, `failed` if the worker did not answer, `served` if it did, `unused` if the client left before that
-- or the worker did not suit it; any other text: unknown
-- returns 1 if the connection was still counted, else 0

places = tonumber(ARGV[3])
local worker, outcome = ARGV[1], ARGV[7]
local is_suspect = is_in(SUSPECTS, worker)
if outcome == 'failed' and call('ZSCORE', WORKERS, worker) then
  -- Several clients that tried it at the same time tell of one failure.
  if not is_suspect then
    local failures = call('HINCRBY', FAILURES, worker, 1)
    call('ZADD', SUSPECTS, now + suspicion_after(failures), worker)
  end
  tally('failed', 1)
elseif outcome == 'served' and not is_suspect then
  -- One that ends while its worker is suspected began before that, and proves nothing.
  call('HDEL', FAILURES, worker)
end
local was_open = remove(worker, ARGV[2])
if outcome == 'failed' or outcome == 'unused' then
  drop_timer(ARGV[2])
elseif was_open then
  end_timer(ARGV[2], ms(now))
end
-- A connection that never came about takes nothing of the worker's lifetime.
if was_open and (outcome == 'failed' or outcome == 'unused') then
  local left = math.max(lifetime_of(worker) - 1, call('ZCARD', connections_of(worker)))
  if call('HEXISTS', LIFETIME, field(worker)) == 1 then call('HSET', LIFETIME, field(worker), left) end
  file(worker)
end
restart_if_due(worker, tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6]))
if was_open then ring() end
return was_open and 1 or 0
