-- What every script of a lane begins with. A lane is a queue, or one group of a topic:
-- KEYS: the stream that is read (a group's is its topic's), the group's own stream (retries, delayed, direct sends;
-- unused by a queue), the bell, the owners, the delayed (by due time), their bodies. ARGV: group, kind (q or g), …
-- Entries of the pseudo-consumer FREE are pending for the server and ready for us: released, expired, given back.
local main, own, bell, owners, delayed, bodies = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local group, kind = ARGV[1], ARGV[2]
local FREE = '~free'
local streams = kind == 'g' and { main, own } or { main }
local home = streams[#streams]

local function private(s) return kind == 'q' or s == 2 end

local function now()
  local t = redis.call('TIME')
  return t[1] * 1000 + math.floor(t[2] / 1000)
end

-- Wakes one reader that blocks; who takes and leaves some rings again.
local function ring() redis.call('XADD', bell, 'MAXLEN', 16, '*', 'r', '') end

local function failed(reply) return type(reply) == 'table' and reply.err end

local function map(flat)
  local m = {}
  for i = 1, #flat, 2 do m[flat[i]] = flat[i + 1] end
  return m
end

local function later(a, b)
  local am, as = string.match(a, '(%d+)-(%d+)')
  local bm, bs = string.match(b, '(%d+)-(%d+)')
  am, as, bm, bs = tonumber(am), tonumber(as), tonumber(bm), tonumber(bs)
  return am > bm or (am == bm and as > bs)
end

-- The group as the server knows it, or nil.
local function known(key)
  local groups = redis.pcall('XINFO', 'GROUPS', key)
  if failed(groups) then return nil end
  for _, flat in ipairs(groups) do
    local g = map(flat)
    if g['name'] == group then return g end
  end
end

local function consumers(key)
  local all = redis.pcall('XINFO', 'CONSUMERS', key, group)
  if failed(all) then return nil end
  for i, flat in ipairs(all) do all[i] = map(flat) end
  return all
end

-- Moves pending entries to FREE, their counts as they are. Those whose body is gone leave the pending list by the
-- claim; their ids are added to `gone`. Answers how many were moved.
local function free(key, pending, gone)
  if #pending == 0 then return 0 end
  local ids, there = {}, {}
  for i, p in ipairs(pending) do ids[i] = p[1] end
  local args = { 'XCLAIM', key, group, FREE, 0 }
  for _, id in ipairs(ids) do args[#args + 1] = id end
  args[#args + 1] = 'JUSTID'
  local claimed = redis.call(unpack(args))
  for _, id in ipairs(claimed) do there[id] = true end
  for _, id in ipairs(ids) do
    if not there[id] then gone[#gone + 1] = id end
  end
  return #claimed
end

local function anyfree()
  for _, key in ipairs(streams) do
    local p = redis.pcall('XPENDING', key, group, '-', '+', 1, FREE)
    if not failed(p) and #p > 0 then return true end
  end
  return false
end

-- Adds the message in ARGV[from..to]: now, or due in `delay` ms. Answers D, or an error's text.
local function put(stream, zset, hash, delay, from, to)
  if delay <= 0 then
    local id = redis.pcall('XADD', stream, '*', unpack(ARGV, from, to))
    return failed(id) or 'D'
  end
  local seq = redis.pcall('HINCRBY', hash, '#', 1)
  if failed(seq) then return seq.err end
  local member = string.format('%016.0f', seq)
  redis.call('HSET', hash, member, cmsgpack.pack({ unpack(ARGV, from, to) }))
  redis.call('ZADD', zset, now() + delay, member)
  return 'D'
end

-- O: `me` owns this hand-over. A: it ended before. L: it is another's.
local function standing(me, s, id, count)
  local p = redis.pcall('XPENDING', streams[s], group, id, id, 1)
  if failed(p) or #p == 0 then return 'A' end
  local _, owner, _, n = unpack(p[1])
  if owner == me and n == count then return 'O' end
  if owner == FREE and n < count then return 'A' end
  return 'L'
end
